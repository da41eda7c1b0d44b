"""The text of a new `berth.toml`: every setting with its default, as comments. Pure."""

from __future__ import annotations

#: Written into a new data folder. Every line is a comment: what is not set has the default shown.
COMMENTED = """\
# Berth's settings. Everything here has a default, shown behind the '#'. Remove a '#' to change a line,
# then start Berth again. Grants, limits and prices are not set here: an admin changes them in the browser.

[site]
# name = "Berth"
# time_zone = "UTC"          # for calendar months on bills, e.g. "Europe/Berlin", "America/New_York"
# language = "en"            # or "zh-CN": for readers who chose none and whose browser asks for neither

[backend]
# kind = "local"             # servers are processes of this machine: a trial, no isolation between users
                             # docker: containers of its Docker Engine, with an [[images]] table below

[docker]                     # servers as containers
# url = ""                   # the Engine, e.g. "unix:///run/docker.sock"; empty: DOCKER_HOST, or the usual place
# homes = "volume"           # a named volume each; or a folder of this host, e.g. "/data/homes/{user}"
# home = "/home/jovyan"      # where a server sees it
# user = "1000:100"          # that all servers run as; never root
# subnet = ""                # the servers' own network, e.g. "10.90.0.0/16"; empty: the Engine chooses
# pids = 4096                # processes and threads of a server at most
# shm = 0.5                  # the part of its memory that a server's /dev/shm may take
# log_mib = 10               # kept of a server's log, twice
# fence = true               # rules in the packet filter bound what servers reach; the agent needs root for it
# registries = []            # hosts that profiles with egress = "registries" may reach
# pull = "missing"           # an image that is not here is fetched at a start; "never": refused
# pull_timeout = "30 min"    # how long that may take; nothing is held or charged meanwhile

[auth]                       # how people log in; each kind has its page of docs/how-to/sign-in.md
# kind = "trial"             # two shared passwords; or passwords, pam, ldap, oidc, github, gitlab, google
# people = "listed"          # who may: admins, users, members of [[auth.groups]]; "all": whom the provider knows
# users = []
# admins = []
# url = ""                   # where browsers reach Berth, if not as they write it, e.g. "https://gpu.example.org"
# label = ""                 # on the log-in button, after "Log in with"
# client_id = ""             # oidc, github, gitlab, google: Berth's id there,
# secret_file = ""           # and a file with its secret; BERTH_AUTH_SECRET goes before it. Never the secret itself
# issuer = ""                # oidc: the provider's issuer; github, gitlab: your own, e.g. "https://git.example.org"
# name_claim = "preferred_username"
# groups_claim = "groups"
# scopes = ["openid", "profile", "email"]
# domains = []               # google: organisations by their domains
# server = ""                # ldap: "ldaps://HOST"
# user_base = ""             # where people are, e.g. "ou=people,dc=example,dc=org"
# user_attribute = "uid"
# group_base = ""            # where groups are
# bind_dn = ""               # as whom it is searched; the password is in secret_file

[book]                       # who holds what, and what it cost
# url = ""                   # empty: a SQLite file in this folder; or "postgresql://berth@db.example/berth"
# password_file = ""         # a file with the password of that database, e.g. "secrets/book_password"; never in the
                             # url. The environment's BERTH_BOOK_PASSWORD goes before it

[gpus]
# source = "auto"            # auto: real GPUs when there is an NVIDIA driver, simulated ones otherwise
                             # nvml: real ones or none; simulated; none
# simulated = 2              # how many to simulate
# mode = "time-slice"        # time-slice: shares of a GPU, by agreement only; exclusive: whole GPUs only
                             # a GPU that servers hold changes when its last one has ended
# over_share = "stop"        # a server that uses more GPU memory than its share is told and then stopped;
                             # "notice": only told; "off"
# over_share_tolerance = 10  # percent beyond its share that are let pass
# over_share_patience = "2 min"  # from the notice to the stop

[hub]
# start_timeout = "2 min"
# named_servers = 2          # besides the default server, per user
# extra_config = ""          # a Python file with JupyterHub configuration (c.…), read after Berth's own

[idle]
# with_gpu = "30 min"        # an idle server with a GPU is stopped after this time; "off" never stops it
# without_gpu = "2 h"
# gpu_idle = "off"           # a GPU that does not compute for this time while no cell runs ends its server as well
# max_age = "off"            # after this time any server is stopped, whatever it does
# notice = "10 min"          # told to its user so long before, and again 2 min before
# keep_most = "3 h"          # so far ahead a user may keep an unused server, if there is credit for it; "off": nobody
# check_every = "30 s"

[save]                       # before a server is ended: notebooks, variables that can be saved, checkpoints
# grace = "2 min"            # when nobody waits for it (idle, max age, credit, drain …); "off" ends it at once
# by_hand = "15 s"           # by its user, an admin, or the end of Berth; only where there is something to save
# variables_mib = 2048       # of one server at most; 0 saves no variables
# variables_time = "1 min"

[schedule]                   # starts that users ask for at a time
# most = 10                  # of one user may wait; 0: nobody schedules any
# window = "10 min"          # so long a start that is refused or fails is tried again

[audit]                      # every night the book is held against its ledger; what differs becomes an alert
# at = "03:30"               # in the site's time zone; "off" for never

[logs]
# format = "json"            # one JSON object a line in logs/*.log; or "text"
# level = "info"             # debug, info or warning

[notices]                    # what people are told, on their pages and as below
# keep = "90 d"              # for so long, read or not

[mail]                       # people are told by mail where a host is given
# host = ""
# port = 587
# security = "starttls"      # or "tls", "none"
# user = ""                  # its password: in a file, or BERTH_MAIL_SECRET in the environment; never here
# password_file = ""
# sender = ""                # e.g. "berth@example.org"
# domain = ""                # users who named no address are at USER@ this, e.g. "example.org"
# own_addresses = true       # whether users may name one
# admins = []                # who is written about alerts and appeals

[chat]                       # webhooks of Slack, Teams, Mattermost, DingTalk, Feishu, Lark, or any that takes JSON
# users = true               # whether users may name one
# hosts = []                 # of your own network, on which webhooks may lie; public ones need no entry
# plain_http = false
# admin_file = ""            # a file with the webhook of the administrators' chat

[extensions]                 # functions of your own, in a Python file beside this one
# profiles = ""              # says who is offered which profiles, e.g. "site_rules:profiles"
# price = ""                 # says what a server costs somebody, e.g. "site_rules:price"
# notify = ""                # tells users what happens to their servers, e.g. by mail: "site_rules:notify"
# templates = ""             # a folder with pages of your own, beside this file
# placement = ""             # chooses the devices of a server, e.g. "site_rules:place"

[first_start]                # fills a new book once; afterwards these belong to the admin page
# monthly_credits = 100      # each user's grant for a calendar month
# credits_per_gpu_hour = 1
# credits_per_cpu_hour = 0
# max_servers = 3            # at once, per user
# max_gpus = 2               # at once, per user

# Profiles: what a user may pick. Without any, Berth offers cpu, gpu-1-8, gpu-1-4, gpu-1-2, gpu-1 and gpu-2.
# [[profiles]]
# name = "gpu-1-4"
# title = "A quarter of a GPU"
# share = "1/4"              # 0 for CPU only, a fraction of one GPU, or a whole number of GPUs
# description = "For notebooks and small models"
# groups = ["lab-a"]         # who may pick it; without, everybody
# egress = "open"            # what containers reach besides the Hub; or "registries", "none"
# images = ["pytorch"]       # which [[images]] it offers; without, all of them
# class = "on-demand"        # its service class, for idle rules: reserved, on-demand, preemptible or off-peak

# GPUs that are divided otherwise than [gpus] says; the first table that fits a GPU counts.
# [[gpus.devices]]
# name = "NVIDIA A100*"      # which: a name with *, or uuid = "GPU-…" (see: nvidia-smi -L), or position = 0
# mode = "exclusive"         # time-slice or exclusive

# Other idle times for some: the first rule that fits and sets a key holds, else the keys of [idle].
# [[idle.rules]]
# profiles = ["gpu-1"]       # who is meant; also classes = ["preemptible"], groups = ["lab-a"]; without, all
# between = "22:00-06:00"    # when, in the site's time zone; also days = ["sat", "sun"]; without, always
# with_gpu = "8 h"           # and what holds then: with_gpu, without_gpu, gpu_idle, max_age, notice

# Groups of the provider that mean something here, each by the provider's own id.
# [[auth.groups]]
# id = "4f1d"                # as in the groups claim; the number of a team (github) or group (gitlab), a DN, a gid
# group = "lab-a"            # a [[groups]] name below
# admin = false              # whether its members are admins

# What servers may run, as containers.
# [[images]]
# name = "pytorch"           # what REST and the book call it
# reference = "lab/pytorch:2.9"  # what the Engine calls it
# title = "PyTorch 2.9"
# description = ""

# Folders of this host that every container sees.
# [[data]]
# source = "/data/imagenet"
# target = "/data/imagenet"
# writable = false

# Groups of the Hub that mean something here: they open profiles to their members.
# [[groups]]
# name = "lab-a"
# leads = ["alice"]          # whom members may ask
"""
