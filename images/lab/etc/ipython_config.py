"""Every IPython of this environment, kernels and terminals alike, keeps to the share of its server's GPU."""

c = get_config()  # noqa: F821  (IPython puts it here)
c.InteractiveShellApp.extensions.append("berth_lab.caps")
