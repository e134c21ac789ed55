"""Topics into tables: what `kohort pipeline land` is made of."""
