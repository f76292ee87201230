#!/bin/sh
# Cargo calls this in place of rustc for the workspace's own crates: the agent's program is linked without any library, and everything that it
# is made of is what the other programs are made of too, compiled once.
case " $* " in
*" --crate-name kasbah_agent "*) exec "$@" -C target-feature=+crt-static ;;
esac
exec "$@"
