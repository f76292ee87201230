# What a watch tells while something is done: watching.sh <lines to wait for> <the watch> <what is done once it tells of the first>
coproc watch { exec $2; }
pid=$watch_PID
read -r line <&"${watch[0]}"
echo "$line"
bash -c "$3" > /dev/null || exit
for ((told = 1; told < $1; told++)); do
  read -r line <&"${watch[0]}"
  echo "$line"
done
kill "$pid"
