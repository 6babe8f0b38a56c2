"""What was found: the report, its findings, their rules and identity. Imports nothing else of the package."""

from smoketest.findings.collect import Observation, merge
from smoketest.findings.report import Finding, ModuleCalls, NotChecked, Report, Site
from smoketest.findings.rules import RULES, Rule
from smoketest.findings.sites import SitePolicy

__all__ = [
    "RULES",
    "Finding",
    "ModuleCalls",
    "NotChecked",
    "Observation",
    "Report",
    "Rule",
    "Site",
    "SitePolicy",
    "merge",
]
