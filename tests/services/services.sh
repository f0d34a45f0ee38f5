#!/usr/bin/env bash
# The outside services of the tests: three Apache Kafka brokers on loopback, and the clients that are not ours.
#
#   services.sh install          fetch Kafka, the Python client and the npm verifiers (quick when already done)
#   services.sh start            fresh brokers; replaces whatever ran in this tree before
#   services.sh stop             end them and remove their data (the logs stay)
#   services.sh env              print the settings for the shell: eval "$(services.sh env)"
#   services.sh broker-stop N    clean stop of broker N (1..3): its leaders move first
#   services.sh broker-kill N    kill -9
#   services.sh broker-start N [key=value ...]
#                                start it again, with further broker settings for this run
#   services.sh all-kill         kill -9 of every broker that runs
#   services.sh all-start        start those again, with their own settings
#   services.sh broker-freeze N  SIGSTOP: the broker holds its connections and says nothing
#   services.sh broker-thaw N    SIGCONT
#   services.sh tool CLASS ...   run one of Kafka's own command line tools by class
#
# Everything lives under target/services (or HUB_TEST_HOME). Settings of start, all optional:
#   HUB_TEST_KAFKA_HEAP=384m  HUB_TEST_START_SECONDS=120  HUB_TEST_KAFKA_EXTRA='key=value key=value'
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
HOME_DIR=${HUB_TEST_HOME:-$ROOT/target/services}
RUN=$HOME_DIR/run
LOGS=$HOME_DIR/logs
LIBS=$HOME_DIR/kafka/libs
VENV=$HOME_DIR/venv
NODE=$HOME_DIR/node
BROKERS=(1 2 3)
USER_NAME=hub
PASSWORD=hub-test-secret
START_SECONDS=${HUB_TEST_START_SECONDS:-120}

say() { printf 'services: %s\n' "$*" >&2; }
die() {
  printf 'services: error: %s\n' "$*" >&2
  exit 1
}

# ---- install ----

# The stamp holds a hash of what was asked for, so a changed pin installs again and an unchanged one costs nothing.
stamp_of() { cat "$@" | sha256sum | cut -d' ' -f1; }
is_stamped() { [[ -f $1/.stamp && $(<"$1/.stamp") == "$2" ]]; }

install_kafka() {
  local stamp
  stamp=$(stamp_of "$HERE/pom.xml")
  is_stamped "$HOME_DIR/kafka" "$stamp" && return
  say "fetching Apache Kafka"
  rm -rf "$HOME_DIR/kafka"
  mkdir -p "$LIBS"
  mvn -B -q -Dstyle.color=never -f "$HERE/pom.xml" dependency:copy-dependencies \
    -DoutputDirectory="$LIBS" -DincludeScope=runtime </dev/null >&2
  echo "$stamp" >"$HOME_DIR/kafka/.stamp"
}

install_python() {
  local stamp
  stamp=$(stamp_of "$HERE/requirements.txt" <(python3 -V))
  is_stamped "$VENV" "$stamp" && "$VENV/bin/python" -c 'import confluent_kafka' 2>/dev/null && return
  say "fetching the Python client"
  rm -rf "$VENV"
  python3 -m venv "$VENV"
  "$VENV/bin/python" -m pip install -q --disable-pip-version-check -r "$HERE/requirements.txt" </dev/null >&2
  echo "$stamp" >"$VENV/.stamp"
}

install_node() {
  local stamp
  stamp=$(stamp_of "$HERE/package.json" "$HERE/package-lock.json")
  is_stamped "$NODE" "$stamp" && return
  say "fetching the npm verifiers"
  rm -rf "$NODE"
  mkdir -p "$NODE"
  cp "$HERE/package.json" "$HERE/package-lock.json" "$NODE/"
  (cd "$NODE" && npm ci --ignore-scripts --no-audit --no-fund --silent </dev/null >&2)
  echo "$stamp" >"$NODE/.stamp"
}

cmd_install() {
  lock
  mkdir -p "$HOME_DIR"
  install_kafka
  install_python
  install_node
}

# ---- the processes ----

# One verb at a time in one tree: two starts at once would remove each other's data.
lock() {
  mkdir -p "$HOME_DIR"
  exec 8>"$HOME_DIR/lock"
  flock -w 300 8 || die "another services.sh holds $HOME_DIR/lock for more than 300 s"
}

dir_of() { echo "$RUN/broker-$1"; }

# The id of broker N when it runs. A file left by a crashed run may name a stranger by now, so the command
# line must carry this tree's mark; one that only waits to be reaped is gone.
pid_of() {
  local pid_file pid state
  pid_file=$(dir_of "$1")/pid
  [[ -s $pid_file ]] || return 1
  pid=$(<"$pid_file")
  { tr '\0' '\n' <"/proc/$pid/cmdline" | grep -qxF -e "-Dhub.test.broker=$(dir_of "$1")"; } 2>/dev/null || return 1
  state=$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2>/dev/null) || return 1
  [[ $state != Z && $state != X ]] || return 1
  echo "$pid"
}

await_gone() {
  local n=$1 seconds=$2 end=$((SECONDS + $2))
  while pid_of "$n" >/dev/null; do
    ((SECONDS < end)) || return 1
    sleep 0.05
  done
}

kill_broker() {
  local n=$1 pid
  pid=$(pid_of "$n") || return 0
  kill -KILL "$pid" 2>/dev/null || true
  await_gone "$n" 30 || die "broker $n (process $pid) does not end after kill -9"
}

# Started by the shell that becomes the JVM, which writes its own id first: no moment in which a broker runs that
# no file names. In a session of its own, so that Ctrl-C reaches the script and not the brokers.
launch_broker() {
  local n=$1 dir log
  dir=$(dir_of "$n")
  log=$LOGS/broker-$n.log
  # The variables are for the inner shell.
  # shellcheck disable=SC2016
  setsid bash -c 'echo $$ >"$1/pid"; shift; exec "$@"' launch "$dir" \
    "$JAVA" "-Dhub.test.broker=$dir" "-Xmx${HUB_TEST_KAFKA_HEAP:-384m}" -Xms128m -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError \
    -Djava.awt.headless=true -Djava.net.preferIPv4Stack=true "-Dlog4j2.configurationFile=$HERE/log4j2.yaml" \
    -cp "$LIBS/*" kafka.Kafka "$dir/server.properties" \
    </dev/null >>"$log" 2>&1 8>&- 9>&- &
  # No word from this shell when it is killed; that is told by who kills it.
  disown
}

find_java() {
  JAVA=${JAVA_HOME:+$JAVA_HOME/bin/}java
  command -v "$JAVA" >/dev/null || die "no java found; Kafka needs Java 17 or newer"
  local major
  major=$("$JAVA" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
  ((${major:-0} >= 17)) || die "java is version ${major:-unknown}; Kafka needs Java 17 or newer"
}

# ---- start ----

# Below the ephemeral range: a port from inside it could be taken by some client's connection while its broker
# is down, and a client that dials a dead port of that range can even end up connected to itself.
pick_ports() {
  python3 - "$1" <<'PY'
import random, socket, sys
wanted = int(sys.argv[1])
with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
    below = int(f.read().split()[0])
top = min(below, 32768)
held = []
for port in random.sample(range(max(1024, top - 14000), top), 4000):
    s = socket.socket()
    try:
        s.bind(("127.0.0.1", port))
    except OSError:
        continue
    held.append(s)
    print(port)
    if len(held) == wanted:
        break
else:
    sys.exit("no free ports below the ephemeral range")
PY
}

make_certs() {
  local tls=$RUN/tls
  mkdir -p "$tls"
  {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -sha256 \
      -subj '/CN=Streaming Hub test CA' -keyout "$tls/ca.key" -out "$tls/ca.pem" \
      -addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign,cRLSign'
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -sha256 \
      -subj '/CN=localhost' -keyout "$tls/server.key" -out "$tls/server.csr"
    openssl x509 -req -in "$tls/server.csr" -CA "$tls/ca.pem" -CAkey "$tls/ca.key" -CAcreateserial -days 30 -sha256 \
      -extfile <(printf '%s\n' 'subjectAltName=DNS:localhost,IP:127.0.0.1' 'basicConstraints=CA:FALSE' \
        'keyUsage=digitalSignature' 'extendedKeyUsage=serverAuth') -out "$tls/server.pem"
  } >"$LOGS/openssl.log" 2>&1 || die "openssl failed, see $LOGS/openssl.log"
  # One file, key first: the form that a broker reads without a Java key store.
  cat "$tls/server.key" "$tls/server.pem" >"$tls/broker.pem"
}

write_config() {
  local n=$1 plain=$2 sasl=$3 control=$4 voters=$5 dir
  dir=$(dir_of "$n")
  mkdir -p "$dir"
  cat >"$dir/server.properties" <<CONF
node.id=$n
process.roles=broker,controller
controller.quorum.voters=$voters
controller.listener.names=CONTROL
listeners=PLAIN://127.0.0.1:$plain,SASL://127.0.0.1:$sasl,CONTROL://127.0.0.1:$control
advertised.listeners=PLAIN://127.0.0.1:$plain,SASL://localhost:$sasl
listener.security.protocol.map=PLAIN:PLAINTEXT,SASL:SASL_SSL,CONTROL:PLAINTEXT
inter.broker.listener.name=PLAIN
log.dirs=$dir/data

listener.name.sasl.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512,PLAIN
listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_$USER_NAME="$PASSWORD";
# With SCRAM-SHA-512 a session ends soon (KIP-368): whoever does not renew it in time is cut off.
listener.name.sasl.scram-sha-512.connections.max.reauth.ms=3000
listener.name.sasl.ssl.keystore.type=PEM
listener.name.sasl.ssl.keystore.location=$RUN/tls/broker.pem

# A topic with any rights set is closed to all others on the SASL listener; without any it is open. The plain one may do everything.
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS

# On, so that a test can see that the hub never creates a topic by asking for it.
auto.create.topics.enable=true
num.partitions=1
default.replication.factor=1
delete.topic.enable=true
unclean.leader.election.enable=false
# Leaders move when a test moves them, not when a timer does.
auto.leader.rebalance.enable=false
# Bodies above the hub's limit must be able to get in.
message.max.bytes=10485760
replica.fetch.max.bytes=10485760

# One broker of three may be down.
offsets.topic.replication.factor=3
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
transaction.state.log.num.partitions=3
share.coordinator.state.topic.replication.factor=3
share.coordinator.state.topic.min.isr=2
share.coordinator.state.topic.num.partitions=3
group.initial.rebalance.delay.ms=0

# Short, so that tests wait for moments: retention, compaction, deletion, hanging transactions, a killed broker.
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
log.segment.delete.delay.ms=500
log.cleaner.backoff.ms=500
log.cleaner.dedupe.buffer.size=8388608
log.index.size.max.bytes=1048576
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
broker.heartbeat.interval.ms=1000
broker.session.timeout.ms=6000
replica.lag.time.max.ms=10000

# Small: three brokers share two cores with what is tested.
num.network.threads=2
num.io.threads=4
background.threads=2
num.recovery.threads.per.data.dir=1
${HUB_TEST_KAFKA_EXTRA:+$(tr ' ' '\n' <<<"$HUB_TEST_KAFKA_EXTRA")}
CONF
  cp "$dir/server.properties" "$dir/base.properties"
}

# The credentials of SCRAM are part of the metadata, so the first format writes them; whichever node leads
# first brings them in.
format_broker() {
  local n=$1 cluster=$2 dir
  dir=$(dir_of "$n")
  "$JAVA" -Xmx96m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "-Dlog4j2.configurationFile=$HERE/log4j2.yaml" -cp "$LIBS/*" \
    kafka.tools.StorageTool format --cluster-id "$cluster" --config "$dir/server.properties" \
    --add-scram "SCRAM-SHA-256=[name=$USER_NAME,password=$PASSWORD]" \
    --add-scram "SCRAM-SHA-512=[name=$USER_NAME,password=$PASSWORD]" </dev/null >"$LOGS/format-$n.log" 2>&1
}

write_env() {
  local plain=$1 sasl=$2
  {
    echo "HUB_TEST_KAFKA_PLAIN=$plain"
    echo "HUB_TEST_KAFKA_SASL=$sasl"
    echo "HUB_TEST_KAFKA_CA=$RUN/tls/ca.pem"
    echo "HUB_TEST_KAFKA_USER=$USER_NAME"
    echo "HUB_TEST_KAFKA_PASSWORD=$PASSWORD"
    echo "HUB_TEST_KAFKA_LIBS=$LIBS/*"
    echo "HUB_TEST_KAFKA_LOGS=$LOGS"
    echo "HUB_TEST_PYTHON=$VENV/bin/python"
    echo "HUB_TEST_NODE_MODULES=$NODE/node_modules"
    echo "HUB_TEST_SERVICES=$HERE/services.sh"
    echo "HUB_TEST_PRODUCE=$HERE/produce.py"
  } >"$RUN/env.part"
  # Whole or not at all: a test may look while we write.
  mv "$RUN/env.part" "$RUN/env"
}

# Waits for conditions, not for time: the brokers answer, know each other, take a SCRAM login, and have made
# their own topics. The process ids let it fail at once when a broker ended.
await_ready() {
  local seconds=$1 broker=$2 n pids=()
  for n in "${BROKERS[@]}"; do
    [[ -z $broker || $broker == "$n" ]] || continue
    # Its file is written by the launched process itself, a moment after it began.
    local end=$((SECONDS + 10))
    until [[ -s $(dir_of "$n")/pid ]] || ((SECONDS >= end)); do sleep 0.02; done
    pids+=(--pid "$(cat "$(dir_of "$n")/pid")")
  done
  "$VENV/bin/python" "$HERE/produce.py" ready --timeout "$seconds" "${pids[@]}" ${broker:+--broker "$broker"} 8>&- >&2
}

fail_with_logs() {
  local n
  say "$1; the logs are in $LOGS"
  for n in "${BROKERS[@]}"; do
    [[ -f $LOGS/broker-$n.log ]] || continue
    printf -- '--- the end of %s ---\n' "$LOGS/broker-$n.log" >&2
    tail -n 12 "$LOGS/broker-$n.log" >&2
  done
  exit 1
}

cmd_start() {
  lock
  find_java
  is_installed || die "not installed; run $HERE/services.sh install"
  remove_run
  rm -rf "$LOGS"
  mkdir -p "$RUN" "$LOGS"
  make_certs

  local ports voters='' plain='' sasl='' n i=0 cluster formats=()
  mapfile -t ports < <(pick_ports $((3 * ${#BROKERS[@]})))
  ((${#ports[@]} == 3 * ${#BROKERS[@]})) || die "could not find free ports"
  for n in "${BROKERS[@]}"; do
    plain+=${plain:+,}127.0.0.1:${ports[i]}
    sasl+=${sasl:+,}localhost:${ports[i + 1]}
    voters+=${voters:+,}$n@127.0.0.1:${ports[i + 2]}
    i=$((i + 3))
  done
  cluster=$(openssl rand 16 | base64 | tr '+/' '-_' | tr -d '=')
  i=0
  for n in "${BROKERS[@]}"; do
    write_config "$n" "${ports[i]}" "${ports[i + 1]}" "${ports[i + 2]}" "$voters"
    i=$((i + 3))
    format_broker "$n" "$cluster" &
    formats+=($!)
  done
  for n in "${!formats[@]}"; do
    wait "${formats[n]}" || die "formatting broker ${BROKERS[n]} failed, see $LOGS/format-${BROKERS[n]}.log"
  done
  for n in "${BROKERS[@]}"; do launch_broker "$n"; done
  write_env "$plain" "$sasl"
  if ! await_ready "$START_SECONDS" ''; then
    remove_run
    fail_with_logs "the brokers did not come up"
  fi
  say "3 brokers are up: $plain"
}

is_installed() { [[ -f $HOME_DIR/kafka/.stamp && -f $VENV/.stamp && -f $NODE/.stamp ]]; }

# ---- stop and the single broker ----

# Killed, not asked: their data goes anyway, and a clean stop of a whole quorum waits for its own majority. Looked for
# by this tree's mark on the command line, so that one counts too whose start was broken off before it left its id.
remove_run() {
  local n pid end=$((SECONDS + 30))
  for n in "${BROKERS[@]}"; do
    while pid=$(marked "$n"); [[ -n $pid ]]; do
      ((SECONDS < end)) || die "broker $n (process $pid) does not end after kill -9"
      kill -KILL "$pid" 2>/dev/null || true
      sleep 0.02
    done
  done
  rm -rf "$RUN"
}

# A process that carries the mark of broker N as one whole argument; one that is dead has no arguments. The mark comes
# by standard input, or the search would find itself.
marked() {
  local found
  # The glob names files; shellcheck takes it for the pattern.
  # shellcheck disable=SC2062
  found=$(grep -lzxF --file=/dev/stdin /proc/[0-9]*/cmdline 2>/dev/null <<<"-Dhub.test.broker=$(dir_of "$1")" | head -n 1) || true
  found=${found#/proc/}
  echo "${found%/cmdline}"
}

cmd_stop() {
  lock
  remove_run
}

need_broker() {
  [[ ${1:-} =~ ^[1-3]$ ]] || die "which broker? 1, 2 or 3"
  [[ -f $RUN/env ]] || die "the services are not started"
}

running_pid() { pid_of "$1" || die "broker $1 does not run"; }

cmd_broker_stop() {
  need_broker "${1:-}"
  lock
  local pid
  pid=$(running_pid "$1")
  kill -TERM "$pid"
  await_gone "$1" 60 || die "broker $1 did not stop within 60 s, see $LOGS/broker-$1.log"
}

cmd_broker_kill() {
  need_broker "${1:-}"
  lock
  running_pid "$1" >/dev/null
  kill_broker "$1"
}

cmd_broker_start() {
  need_broker "${1:-}"
  lock
  find_java
  local n=$1 dir setting
  shift
  dir=$(dir_of "$n")
  ! pid_of "$n" >/dev/null || die "broker $n runs already"
  cp "$dir/base.properties" "$dir/server.properties"
  for setting in "$@"; do
    [[ $setting == *=* ]] || die "not a broker setting (key=value): $setting"
    echo "$setting" >>"$dir/server.properties"
  done
  rm -f "$dir/pid"
  launch_broker "$n"
  await_ready "$START_SECONDS" "$n" || fail_with_logs "broker $n did not come up"
}

cmd_all_kill() {
  [[ -f $RUN/env ]] || die "the services are not started"
  lock
  local n
  for n in "${BROKERS[@]}"; do kill_broker "$n"; done
}

cmd_all_start() {
  [[ -f $RUN/env ]] || die "the services are not started"
  lock
  find_java
  local n
  for n in "${BROKERS[@]}"; do
    ! pid_of "$n" >/dev/null || continue
    cp "$(dir_of "$n")/base.properties" "$(dir_of "$n")/server.properties"
    rm -f "$(dir_of "$n")/pid"
    launch_broker "$n"
  done
  await_ready "$START_SECONDS" '' || fail_with_logs "the brokers did not come up"
}

cmd_broker_freeze() {
  need_broker "${1:-}"
  kill -STOP "$(running_pid "$1")"
}

cmd_broker_thaw() {
  need_broker "${1:-}"
  kill -CONT "$(running_pid "$1")"
}

cmd_env() {
  [[ -f $RUN/env ]] || die "the services are not started"
  local line
  while IFS= read -r line; do
    printf 'export %s=%q\n' "${line%%=*}" "${line#*=}"
  done <"$RUN/env"
}

cmd_tool() {
  find_java
  exec "$JAVA" -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "-Dlog4j2.configurationFile=$HERE/log4j2.yaml" -cp "$LIBS/*" "$@"
}

case ${1:-} in
  install | start | stop | env | tool | all-kill | all-start | broker-stop | broker-start | broker-kill | broker-freeze | broker-thaw)
    verb=cmd_${1//-/_}
    shift
    "$verb" "$@"
    ;;
  *)
    sed -n '2,/^set -/{/^set -/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
