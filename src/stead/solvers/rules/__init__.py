"""Rules of thumb: what people and other tools do without searching, and what every plan is compared with."""
