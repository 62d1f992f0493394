"""How a site comes back: nodes that boot again and again the same, a node that dies under a job. Only with consent."""
