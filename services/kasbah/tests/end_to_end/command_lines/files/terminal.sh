# A command at a terminal at which somebody types, and which stays open: terminal.sh <what is typed> <the command>
rm -f typed
mkfifo typed
exec 9<> typed
[ -z "$1" ] || echo "$1" >&9
script -qec "$2" /dev/null <&9
