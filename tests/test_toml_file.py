from localjudge.toml_file import closest


def test_closest_names_one_near_word_or_all():
    assert closest("Reference ", ["reference", "output"]) == "did you mean 'reference'?"
    assert closest("zzz", ["reference", "output"]) == "there are: reference, output"
