"""`python -m localjudge` is `localjudge`."""

from localjudge.cli import main

main()
