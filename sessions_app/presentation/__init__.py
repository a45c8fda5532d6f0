"""What the pages of admin and console share: charts, Markdown, transcripts and form fields."""
