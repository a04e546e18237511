"""From what a run drew to what the reference transcription of its algorithm releases, by the papers.

Each entry translates the plan into the letters of the paper; the steps are in `tests/reference`.
"""

from tests.conformance.trainers.transcriptions import (
    bassily_guzman,
    lowy_razaviyayn,
    wang_erm,
    wang_nonsmooth,
    yang_nsgd,
)
from tests.conformance.trainers.transcriptions.drawn import Drawn, Transcription

__all__ = ["TRANSCRIPTIONS", "Drawn"]

TRANSCRIPTIONS: dict[str, Transcription] = {
    **yang_nsgd.TRANSCRIPTIONS,
    **wang_nonsmooth.TRANSCRIPTIONS,
    **wang_erm.TRANSCRIPTIONS,
    **lowy_razaviyayn.TRANSCRIPTIONS,
    **bassily_guzman.TRANSCRIPTIONS,
}
