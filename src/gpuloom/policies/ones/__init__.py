"""ONES (SC'21): as published."""

from gpuloom.policies.ones.paper import OnesPaper as OnesPaper
