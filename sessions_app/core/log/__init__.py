"""The log of events: the journal that stores them, the broadcast that announces them, the feeds that read them back."""
