"""One module per kind of fault: how a run is set up for it, and what is done to it and when."""
