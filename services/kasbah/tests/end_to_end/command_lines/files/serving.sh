# What is answered at a port that a command opens: serving.sh <path> <the command, which prints where it listens>
coproc server { exec $2; }
pid=$server_PID
read -r line <&"${server[0]}"
port=$(grep -oE '127.0.0.1:[0-9]+' <<< "$line" | cut -d: -f2)
exec {socket}<> "/dev/tcp/127.0.0.1/$port"
printf 'GET %s HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' "$1" >&"$socket"
# The headers have the time of day, and are the server's on this machine.
sed -n '1p; /^\r$/,$p' <&"$socket"
kill "$pid"
