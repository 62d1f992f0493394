"""What a person does to a site while the toolkit watches: feeds off, cables out, switches and nodes off, power back."""
