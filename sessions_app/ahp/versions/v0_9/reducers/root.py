"""The reducers of the root's state, which are those of AHP 0.1."""

from sessions_app.ahp.versions.v0_1.reducers.root import ROOT as ROOT_0_1
from sessions_app.ahp.versions.v0_9.reducers.steps import Steps, clockless

ROOT: Steps = {name: clockless(step) for name, step in ROOT_0_1.items()}
