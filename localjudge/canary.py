"""One question before the first row: does this engine keep this model to the allowed answers?

Options of engines are renamed, and constraints are switched off by others that have nothing to do
with them. So the question is one that no model answers with an allowed answer unless it has to.
"""

from __future__ import annotations

from math import isfinite

from localjudge.answers import Labels
from localjudge.encoding import PromptEncoder
from localjudge.engines.base import Choice, Draft, Engine, Failure
from localjudge.errors import EngineError
from localjudge.tree import AnswerTree

_SYSTEM = "You explain things to children."
_QUESTION = "What is a river? Tell me in two sentences."
_ANSWERS = Labels.of(["zebra", "quartz"])


def check_engine(engine: Engine, encoder: PromptEncoder, *, guided: bool) -> None:
    """Ask the question, by the way of decoding that the run uses.

    Raises:
        EngineError: what came back is no allowed answer, or no probability.
    """
    frame = encoder.frame(_SYSTEM, _QUESTION)
    prompt = frame.close([*frame.head, *frame.tail], "")
    if guided:
        budget = 1 + max(len(text.encode()) for text in _ANSWERS.documents)
        [draft] = engine.write([prompt], _ANSWERS.pattern, budget)
        _check_draft(draft)
    else:
        tree = AnswerTree.build(encoder.content, _ANSWERS.documents, frame.context)
        [choice] = engine.choose([tree.extend(prompt)], [tree])
        _check_choice(choice)


def _check_draft(draft: Draft | Failure) -> None:
    if isinstance(draft, Failure):
        raise EngineError(
            f"the engine cannot constrain this model: {draft.error}",
            hint="use decoding `direct`, or another engine",
        )
    if draft.text not in _ANSWERS.documents or draft.finish_reason != "stop":
        allowed = " or ".join(_ANSWERS.documents)
        raise EngineError(
            f"the engine does not keep to the allowed answers: asked for {allowed}, it wrote "
            f"{draft.text!r} (finish reason {draft.finish_reason!r})",
            hint="use decoding `direct`, or another engine",
        )


def _check_choice(choice: Choice | Failure) -> None:
    if isinstance(choice, Failure):
        raise EngineError(f"the engine cannot judge with this model: {choice.error}")
    sound = all(isfinite(log_prob) and log_prob < 1e-3 for log_prob in choice.log_probs)
    if len(choice.log_probs) != len(_ANSWERS.values) or not sound:
        raise EngineError(
            "what the engine returns for two answers is not two log-probabilities: "
            f"{list(choice.log_probs)}",
            hint="use another engine, or dtype float32",
        )
