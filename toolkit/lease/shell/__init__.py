"""A shell where a lease's GPUs are, by the user's own ssh client: `toolkit ssh`, editors, scp, forwarded ports.

The server's own sshd has no part in it. Each connection is a step of the lease's job, which srun starts; in it an sshd
without any rights beyond the user's speaks on its standard streams (inetd mode) and listens nowhere. It ends with the
connection, and with the lease. The ssh client reaches it by a ProxyCommand (module proxy).
"""
