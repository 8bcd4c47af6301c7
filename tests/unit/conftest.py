"""The pure tier is run at every change: a property is tried on fewer inputs there than hypothesis takes by default."""

from hypothesis import settings

settings.register_profile("quick", max_examples=25)
settings.load_profile("quick")
