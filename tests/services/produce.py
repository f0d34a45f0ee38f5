#!/usr/bin/env python3
"""The Kafka client of the tests that is not ours (confluent-kafka): topics, records, load, and what a cluster says.

Every verb ends with exit code 0 only when all it was asked for is done and acknowledged. Answers are JSON on
standard output, everything else goes to standard error. The brokers come from --brokers, HUB_TEST_KAFKA_PLAIN, or
the env file of running services; --sasl takes the SASL_SSL listeners instead.
"""

import argparse
import base64
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import deque
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AdminClient
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec
from confluent_kafka.admin import ResourcePatternType, ResourceType, ScramCredentialInfo, ScramMechanism
from confluent_kafka.admin import UserScramCredentialUpsertion

HERE = Path(__file__).resolve().parent
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
# Above every body a test sends: the hub refuses large bodies, the client must not do it first.
MESSAGE_BYTES_MAX = 10_000_000
PREFIX = "lerian.streaming."
# A load that is told to stop ends after that long at the latest.
STOP_SECONDS = 10


def say(text):
    print(f"produce: {text}", file=sys.stderr, flush=True)


def fail(text):
    say(f"error: {text}")
    sys.exit(1)


def answer(value):
    print(json.dumps(value), flush=True)


# ---- connecting ----


def settings():
    """The services' settings: the environment, else the file that start wrote."""
    home = Path(os.environ.get("HUB_TEST_HOME", HERE.parents[1] / "target" / "services"))
    found = {}
    env_file = home / "run" / "env"
    if env_file.is_file():
        found = dict(line.split("=", 1) for line in env_file.read_text().splitlines())
    found.update((k, v) for k, v in os.environ.items() if k.startswith("HUB_TEST_"))
    return found


# What the library met on its own (a refused login, a bad certificate): the reason behind a call that timed out.
last_error = deque(maxlen=1)


def note_error(error):
    # That all are down is what follows, never the reason.
    if error.code() != KafkaError._ALL_BROKERS_DOWN:
        last_error.append(error)


def connection(args):
    env = settings()
    brokers = args.brokers or env.get("HUB_TEST_KAFKA_SASL" if args.sasl else "HUB_TEST_KAFKA_PLAIN")
    if not brokers:
        fail("no brokers: give --brokers or start the services")
    conf = {
        "bootstrap.servers": brokers,
        "socket.timeout.ms": 10_000,
        # A stopped broker is looked for again soon, so that tests of restarts do not wait for us.
        "reconnect.backoff.max.ms": 1_000,
        # Failed connections are ordinary here; what matters comes back as an error of the call.
        "log_level": 2,
        "error_cb": note_error,
    }
    if args.sasl:
        conf |= {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": args.mechanism,
            "sasl.username": args.user or env["HUB_TEST_KAFKA_USER"],
            "sasl.password": args.password or env["HUB_TEST_KAFKA_PASSWORD"],
            "ssl.ca.location": args.ca or env["HUB_TEST_KAFKA_CA"],
        }
    return conf


# Kept to the end: a client that is collected while its calls are open leaves them hanging.
clients = []


def admin(args):
    clients.append(AdminClient(connection(args)))
    return clients[-1]


def why():
    for client in clients:
        client.poll(0)
    return f" ({last_error[0].str()})" if last_error else ""


def settle(futures):
    """Waits for all futures of one admin call; the first failure ends the program."""
    results = {}
    for key, future in futures.items():
        try:
            results[key] = future.result(timeout=60)
        except KafkaException as e:
            fail(f"{key}: {e.args[0].str()}")
    return results


def poll_until(what, seconds, probe):
    """Asks again until probe() gives something; a condition with a bound, never a fixed wait."""
    end = time.monotonic() + seconds
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > end:
            fail(f"{what}: not within {seconds} s{why()}")
        time.sleep(0.05)


# ---- topics ----


def pairs(items):
    return dict(item.split("=", 1) for item in items)


def topic_states(client, names):
    found = client.describe_topics(TopicCollection(names), request_timeout=10)
    states = {}
    for name, future in found.items():
        try:
            states[name] = future.result(timeout=10)
        except KafkaException:
            states[name] = None
    return states


def create_topic(args):
    client = admin(args)
    for name in args.name:
        if args.assignment:
            assignment = [[int(b) for b in p.split(":")] for p in args.assignment.split(",")]
            topic = NewTopic(name, num_partitions=len(assignment), replica_assignment=assignment, config=pairs(args.config))
            partitions = len(assignment)
        else:
            topic = NewTopic(name, num_partitions=args.partitions, replication_factor=args.replication, config=pairs(args.config))
            partitions = args.partitions
        settle(client.create_topics([topic], operation_timeout=30))
        await_partitions(client, name, partitions)


def await_partitions(client, name, partitions):
    """The controller answered; now every broker of the cluster must know the topic and its leaders."""

    def known():
        state = topic_states(client, [name])[name]
        return state and len(state.partitions) >= partitions and all(p.leader for p in state.partitions)

    poll_until(f"topic {name}", 30, known)


def delete_topic(args):
    client = admin(args)
    settle(client.delete_topics(args.name, operation_timeout=30))
    poll_until("deletion", 30, lambda: not any(topic_states(client, args.name).values()))


def add_partitions(args):
    client = admin(args)
    settle(client.create_partitions([NewPartitions(args.name, args.partitions)], operation_timeout=30))
    await_partitions(client, args.name, args.partitions)


def alter_topic(args):
    entries = [
        ConfigEntry(k, v or None, incremental_operation=AlterConfigOpType.SET if v else AlterConfigOpType.DELETE)
        for k, v in pairs(args.config).items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, args.name, incremental_configs=entries)
    client = admin(args)
    settle(client.incremental_alter_configs([resource]))


def delete_records(args):
    before = TopicPartition(args.name, args.partition, args.offset)
    client = admin(args)
    done = settle(client.delete_records([before], operation_timeout=30))
    answer([{"topic": tp.topic, "partition": tp.partition, "low": d.low_watermark} for tp, d in done.items()])


def right(args):
    """Who may read a topic: once anybody is named, nobody else may (over SASL). --take takes a right away again."""
    parts = [ResourceType.TOPIC, args.name, ResourcePatternType.LITERAL, f"User:{args.user_name}", "*"]
    parts += [AclOperation.READ, AclPermissionType.ALLOW]
    client = admin(args)
    if args.take:
        settle(client.delete_acls([AclBindingFilter(*parts)], request_timeout=30))
    else:
        settle(client.create_acls([AclBinding(*parts)], request_timeout=30))


def scram_user(args):
    """A user's password for one mechanism, made or changed."""
    mechanism = {256: ScramMechanism.SCRAM_SHA_256, 512: ScramMechanism.SCRAM_SHA_512}[args.bits]
    info = ScramCredentialInfo(mechanism, 4096)
    change = UserScramCredentialUpsertion(args.user_name, info, args.new_password.encode())
    settle(admin(args).alter_user_scram_credentials([change], request_timeout=30))


def describe(args):
    client = admin(args)
    states = topic_states(client, args.name)
    answer(
        {
            name: state
            and {
                "topic_id": str(state.topic_id),
                "partitions": [
                    {
                        "partition": p.id,
                        "leader": p.leader.id if p.leader else None,
                        "replicas": [n.id for n in p.replicas],
                        "isr": sorted(n.id for n in p.isr),
                    }
                    for p in state.partitions
                ],
            }
            for name, state in states.items()
        }
    )


def move_leader(args):
    """Puts the wished broker first among the replicas (Kafka's own tool; moves no data when it is one of them),
    then elects the preferred leader."""
    client = admin(args)
    state = topic_states(client, [args.name])[args.name]
    if not state:
        fail(f"no topic {args.name}")
    chosen = [p for p in state.partitions if args.partition is None or p.id == args.partition]
    moves = []
    for p in chosen:
        replicas = [n.id for n in p.replicas]
        if args.to is not None:
            to = args.to
        elif p.leader and len(replicas) > 1:
            to = replicas[(replicas.index(p.leader.id) + 1) % len(replicas)]
        else:
            fail(f"partition {p.id} has no other replica to lead it")
        if replicas[0] != to:
            # A broker that holds no replica takes the place of the first one.
            others = [r for r in replicas if r != to] if to in replicas else replicas[1:]
            moves.append({"topic": args.name, "partition": p.id, "replicas": [to, *others]})
    wanted = {p.id: p.replicas[0].id for p in chosen} | {m["partition"]: m["replicas"][0] for m in moves}
    brokers = connection(args)["bootstrap.servers"]
    if moves:
        kafka_tool("reassign.ReassignPartitionsCommand", brokers, ["--execute", "--reassignment-json-file"], moves)

    def ready_to_lead():
        now = topic_states(client, [args.name])[args.name]
        parts = {p.id: p for p in now.partitions}
        return all(parts[p].replicas[0].id == b and b in [n.id for n in parts[p].isr] for p, b in wanted.items())

    poll_until("the reassignment", 60, ready_to_lead)
    spots = [{"topic": args.name, "partition": p} for p in wanted]
    kafka_tool("LeaderElectionCommand", brokers, ["--election-type", "preferred", "--path-to-json-file"], spots)

    def elected():
        now = topic_states(client, [args.name])[args.name]
        leaders = {p.id: p.leader.id for p in now.partitions if p.leader}
        return all(leaders.get(p) == b for p, b in wanted.items()) and leaders

    answer({"topic": args.name, "leaders": poll_until("the election", 30, elected)})


def kafka_tool(name, brokers, options, partitions):
    """Kafka's own tools, over the plaintext listeners: elect_leaders of confluent-kafka 2.16.1 fails on its arguments,
    and it has no call for reassignments."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as plan:
        json.dump({"version": 1, "partitions": partitions}, plan)
        plan.flush()
        command = [str(HERE / "services.sh"), "tool", f"org.apache.kafka.tools.{name}", "--bootstrap-server", brokers]
        command += [*options, plan.name]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        if done.returncode:
            fail(f"{name}: {done.stdout}{done.stderr}")


def wait_isr(args):
    """Until every partition of the topics (or of all topics) has all its replicas in sync."""
    client = admin(args)

    def in_sync():
        names = args.name or list(client.list_topics(timeout=10).topics)
        states = topic_states(client, names)
        return all(s and all(len(p.isr) == len(p.replicas) for p in s.partitions) for s in states.values())

    poll_until("in-sync replicas", args.timeout, in_sync)


# ---- what the cluster says ----


def group_offsets(args, name):
    """Asked as a consumer of the group that never joins it. The admin call for this (list_consumer_group_offsets of
    confluent-kafka 2.16.1) crashes the process when the coordinator is just coming up or moving."""
    consumer = Consumer(connection(args) | {"group.id": name, "enable.auto.commit": False})
    try:
        topics = consumer.list_topics(timeout=10).topics
        spots = [TopicPartition(t, p) for t, meta in topics.items() if not t.startswith("__") for p in meta.partitions]
        return consumer.committed(spots or [TopicPartition("none", 0)], timeout=10)
    finally:
        consumer.close()


def group(args):
    def asked():
        try:
            return (group_offsets(args, args.group),)
        except KafkaException as e:
            if not e.args[0].retriable() and e.args[0].code() != KafkaError._TIMED_OUT:
                raise

    (found,) = poll_until(f"the offsets of group {args.group}", 60, asked)
    rows = [
        {"topic": t.topic, "partition": t.partition, "offset": t.offset, "metadata": t.metadata} for t in found if t.offset >= 0
    ]
    answer(sorted(rows, key=lambda r: (r["topic"], r["partition"])))


def watermarks(args):
    """Low and high watermark, and the last stable offset: what a reader of committed records may read up to."""
    client = admin(args)
    states = topic_states(client, args.name)
    missing = [n for n, s in states.items() if not s]
    if missing:
        fail(f"no topic {', '.join(missing)}")
    spots = [TopicPartition(n, p.id) for n, s in states.items() for p in s.partitions]

    def ask(spec, isolation):
        def all_known():
            # A new client each time: one that knows a leader asks that one again, also when it is gone.
            asked = admin(args).list_offsets({s: spec for s in spots}, isolation_level=isolation, request_timeout=3)
            try:
                found = {(tp.topic, tp.partition): future.result(timeout=10).offset for tp, future in asked.items()}
            except KafkaException:
                return None
            # A partition whose leader is gone answers below zero until another one leads.
            return all(offset >= 0 for offset in found.values()) and found

        return poll_until("the offsets", 60, all_known)

    low = ask(OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
    high = ask(OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
    stable = ask(OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
    answer([{"topic": t, "partition": p, "low": low[t, p], "high": high[t, p], "stable": stable[t, p]} for t, p in sorted(low)])


def consume(args):
    """All committed records of a topic, as JSON lines: the other client's word on what is in there."""
    conf = connection(args) | {
        "group.id": "produce-py-consume",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(conf)
    try:
        parts = consumer.list_topics(args.name, timeout=15).topics[args.name].partitions
        consumer.assign([TopicPartition(args.name, p, 0) for p in parts])
        open_parts = set(parts)
        end = time.monotonic() + args.timeout
        while open_parts:
            if time.monotonic() > end:
                fail(f"not at the end of {args.name} within {args.timeout} s")
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                if message.error().code() != KafkaError._PARTITION_EOF:
                    fail(message.error().str())
                open_parts.discard(message.partition())
                continue
            answer(record_json(message))
    finally:
        consumer.close()


def record_json(message):
    def text(raw):
        if raw is None:
            return None
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(raw).decode()}

    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": text(message.key()),
        "headers": [[k, text(v)] for k, v in message.headers() or []],
        "value": text(message.value()),
    }


# ---- records ----


def as_bytes(value):
    """null, text, or {"base64": ...}."""
    if value is None:
        return None
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return value.encode()


def records(args):
    """Produces a JSON lines file record by record, in order; prints where each one went.

    A line {"do": "begin" | "commit" | "abort" | "flush"} steers transactions and batch borders in between."""
    conf = connection(args) | {
        "compression.type": args.compression,
        "linger.ms": args.linger,
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "enable.idempotence": True,
        "message.timeout.ms": 60_000,
    }
    source = sys.stdin if args.file == "-" else open(args.file, encoding="utf-8")
    lines = [json.loads(line) for line in source if line.strip()]
    steered = any("do" in line for line in lines)
    if args.transaction != "none" or steered:
        conf["transactional.id"] = args.transactional_id or f"records-{os.getpid()}-{time.time_ns()}"
        conf["transaction.timeout.ms"] = args.transaction_timeout_ms
        # The client wants its own limits below the transaction's.
        for limit in ("socket.timeout.ms", "message.timeout.ms"):
            conf[limit] = min(conf[limit], args.transaction_timeout_ms)
    producer = Producer(conf)
    if "transactional.id" in conf:
        producer.init_transactions(60)
    placed = [None] * len(lines)

    def report(index):
        def on_delivery(error, message):
            if error is not None:
                fail(f"record {index + 1}: {error.str()}")
            placed[index] = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}

        return on_delivery

    if args.transaction != "none":
        producer.begin_transaction()
    for index, line in enumerate(lines):
        if "do" in line:
            steer(producer, line["do"])
            continue
        value = base64.b64decode(line["value_base64"]) if "value_base64" in line else as_bytes(line.get("value"))
        extra = {}
        if "partition" in line:
            extra["partition"] = line["partition"]
        if "timestamp" in line:
            extra["timestamp"] = line["timestamp"]
        producer.produce(
            line["topic"],
            value=value,
            key=as_bytes(line.get("key")),
            headers=[(k, as_bytes(v)) for k, v in line.get("headers", [])],
            on_delivery=report(index),
            **extra,
        )
        producer.poll(0)
    end_transaction(producer, args.transaction)
    for place in placed:
        if place:
            answer(place)


def steer(producer, step):
    if step == "begin":
        producer.begin_transaction()
    elif step == "flush":
        flush(producer)
    else:
        end_transaction(producer, step)


def end_transaction(producer, how):
    # Flushed before an abort as well: the client would throw away what it has not sent, and the broker would never
    # hold the aborted records that the test is about.
    flush(producer)
    if how == "commit":
        retried(producer.commit_transaction)
    elif how == "abort":
        retried(producer.abort_transaction)
    # "hang" and "none": nothing more; a hanging transaction stays open until its timeout.


def flush(producer):
    left = producer.flush(120)
    if left:
        fail(f"{left} records not acknowledged within 120 s")


def retried(step):
    """A commit that ran into a leader move may be called again, and must be."""
    end = time.monotonic() + 120
    while True:
        try:
            return step(30)
        except KafkaException as e:
            if not e.args[0].retriable() or time.monotonic() > end:
                fail(e.args[0].str())


# ---- load ----

# What the apps around a ledger say; (resource, event) per record, drawn by the seed.
KINDS = [
    ("loan_application", "approved"),
    ("loan_application", "rejected"),
    ("payment", "settled"),
    ("payment", "returned"),
    ("transaction", "posted"),
    ("account", "opened"),
    ("contract", "signed"),
    ("instalment", "paid"),
]
WORDS = (
    "amount currency BRL debtor creditor ledger instalment contract settlement reference branch account payroll margin "
    "approved pending posted 0001 9847 120.50 3499.90 2026-11-30 pix ted boleto customer document assetCode metadata"
).split()


class Ids:
    """UUIDv7 that rise strictly within this process: 48 bits of milliseconds, then a counter, then chance."""

    def __init__(self, rng):
        self.rng = rng
        self.last = 0

    def next(self, now_ns):
        # The 12 bits after the milliseconds are their fraction; a tie or a clock step back takes the next value.
        stamp = (now_ns // 1_000_000 << 12) | (now_ns % 1_000_000 * 4096 // 1_000_000)
        if stamp <= self.last:
            stamp = self.last + 1
        self.last = stamp
        tail = self.rng.getrandbits(62)
        high = "%012x" % (stamp >> 12)
        low = "%016x" % (tail | 0x8000000000000000)
        return f"{high[:8]}-{high[8:]}-7{stamp & 0xFFF:03x}-{low[:4]}-{low[4:]}"


class Lane:
    """One producer with its codec and its tenants, driven by one thread. A tenant stays with one producer, so that its
    order is that of one connection, while producers interleave their transactions in the same partitions."""

    def __init__(self, args, run, index, width, codec):
        self.errors = []
        self.rng = random.Random(f"{args.seed}/{index}")
        self.tenants = range(index, args.tenants, width)
        # The first lanes take what does not divide.
        self.quota = args.events // width + (index < args.events % width)
        self.rate = args.rate / width
        self.rows = []
        self.stats = {"committed": 0, "aborted": 0, "transactions": 0, "transactions_aborted": 0}
        conf = connection(args) | {
            "linger.ms": args.linger,
            "compression.type": codec,
            "enable.idempotence": True,
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 262_144,
            "message.timeout.ms": 120_000,
            # Only failures call back into Python: a call for each of a million records is what would make this slow.
            "delivery.report.only.error": True,
            "on_delivery": self.on_failure,
        }
        if args.transactions_every:
            conf["transactional.id"] = f"{run}-{index}"
            conf["transaction.timeout.ms"] = 120_000
        self.producer = Producer(conf)
        if args.transactions_every:
            self.producer.init_transactions(60)

    def on_failure(self, error, _message):
        if error is not None:
            self.errors.append(error.str())

    def check(self):
        if self.errors:
            fail(f"{len(self.errors)} records were not delivered: {self.errors[0]}")


class Tenants:
    """What is fixed about each tenant, and how many of its events are committed or open."""

    def __init__(self, args, topics):
        width = max(3, len(str(args.tenants - 1)))
        self.names = [f"{args.tenant_prefix}{i:0{width}d}" for i in range(args.tenants)]
        self.keys = [n.encode() for n in self.names]
        self.topic = [topics[i % len(topics)] for i in range(args.tenants)]
        self.partition = [i // len(topics) % args.partitions for i in range(args.tenants)]
        self.count = [0] * args.tenants
        self.headers = [[headers_of(t, n, kind) for kind in KINDS] for t, n in zip(self.topic, self.names)]


class Window:
    """So many records may be on their way; standard input says, a line each time, how many have arrived in all."""

    def __init__(self, most):
        self.most, self.arrived, self.moved = most, 0, threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in sys.stdin:
            with self.moved:
                self.arrived = int(line)
                self.moved.notify()

    def has_room(self, made):
        return made - self.arrived < self.most

    def wait(self):
        with self.moved:
            self.moved.wait(0.05)


class Manifest:
    """Two files, whole lines only, written when their fate is known: FILE, and FILE.aborted."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.files = [open(f, "w", encoding="utf-8") for f in (path, f"{path}.aborted")] if path else []

    def committed(self, rows):
        self.write(0, rows)

    def aborted(self, rows):
        self.write(1, rows)

    def write(self, which, rows):
        if self.files:
            with self.lock:
                self.files[which].write("".join(rows))

    def close(self):
        for file in self.files:
            file.close()


def headers_of(topic, tenant, kind):
    source = topic.rsplit(".", 1)[-1]
    resource, event = kind
    rest = [
        ("ce-specversion", "1.0"),
        ("ce-source", source),
        ("ce-type", f"studio.lerian.{source}.{resource}.{event}"),
        ("ce-schemaversion", "1.0.0"),
        ("ce-resourcetype", resource),
        ("ce-eventtype", event),
        ("ce-tenantid", tenant),
        ("ce-datacontenttype", "application/json"),
    ]
    return [(k, v.encode()) for k, v in rest]


def paddings(rng, length):
    """A few dozen bodies' worth of words: compresses like real bodies, costs nothing per record."""
    made = []
    for _ in range(64):
        text = ""
        while len(text) < length:
            text += rng.choice(WORDS) + " "
        made.append(text[:length])
    return made


def load(args):
    topics = args.topics.split(",")
    codecs = CODECS if args.compression == "mixed" else args.compression.split(",")
    if args.aborts_every and not args.transactions_every:
        fail("--aborts-every needs --transactions-every")
    if args.aborts_every == 1:
        fail("--aborts-every 1 would abort every transaction")
    # A new name each run: an earlier run that was killed must not be waited for.
    run = f"load-{os.getpid()}-{time.time_ns()}"
    codecs = codecs[: args.tenants]
    lanes = [Lane(args, run, i, len(codecs), codec) for i, codec in enumerate(codecs)]
    tenants = Tenants(args, topics)
    manifest = Manifest(args.manifest)
    if args.window and len(lanes) > 1:
        fail("--window is for one producer: one codec")
    window = Window(args.window) if args.window else None
    stop = threading.Event()

    def end(*_):
        stop.set()
        # What is on its way is waited for, but not for ever: brokers may be gone. The alarm ends the process, as a second signal does.
        signal.alarm(STOP_SECONDS)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)

    begun = time.monotonic()
    with ThreadPoolExecutor(len(lanes)) as pool:
        runs = [pool.submit(load_lane, args, lane, tenants, manifest, stop, window) for lane in lanes]
        wait(runs, return_when=FIRST_EXCEPTION)
        stopped = stop.is_set()
        # When one lane failed the others end too; when all are done this changes nothing.
        stop.set()
    manifest.close()
    for one in runs:
        one.result()
    seconds = time.monotonic() - begun
    stats = {k: sum(lane.stats[k] for lane in lanes) for k in lanes[0].stats}
    answer(stats | {"stopped": stopped, "seconds": round(seconds, 3), "per_second": round(stats["committed"] / seconds)})


def load_lane(args, lane, tenants, manifest, stop, window):
    ids = Ids(lane.rng)
    every, stats, rows = args.transactions_every, lane.stats, lane.rows
    # A tenant's number rises by one with each committed event: a receiver sees holes and swaps without the manifest.
    count, names, keys = tenants.count, tenants.names, tenants.keys
    mine, kinds = lane.tenants, len(KINDS)
    frame = len('{"tenant":"","n":,"at":,"note":""}') + len(names[0]) + 4 + 16
    pads = paddings(lane.rng, max(0, args.body_bytes - frame))
    begun = time.monotonic()
    second, second_text = 0, ""
    made = 0
    while not stop.is_set() and stats["committed"] < lane.quota:
        if lane.rate:
            ahead = begun + made / lane.rate - time.monotonic()
            if ahead > 0 and stop.wait(ahead):
                break
        while window and not window.has_room(made) and not stop.is_set():
            lane.producer.poll(0)
            window.wait()
        if every and not rows:
            lane.producer.begin_transaction()
        tenant = mine[int(lane.rng.random() * len(mine))]
        now = time.time_ns()
        if now // 1_000_000_000 != second:
            second = now // 1_000_000_000
            second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        event_id = ids.next(now)
        count[tenant] += 1
        n = count[tenant]
        name, topic, partition = names[tenant], tenants.topic[tenant], tenants.partition[tenant]
        body = f'{{"tenant":"{name}","n":{n},"at":{now // 1000},"note":"{pads[made & 63]}"}}'
        headers = [("ce-id", event_id), ("ce-time", f"{second_text}.{now % 1_000_000_000:09d}Z")]
        headers += tenants.headers[tenant][int(lane.rng.random() * kinds)]
        put(lane, topic, body, keys[tenant], partition, headers)
        made += 1
        checksum = f",{zlib.crc32(body.encode())}" if args.checksums else ""
        rows.append((tenant, f"{event_id},{name},{topic},{partition},{n}{checksum}\n"))
        if every:
            if len(rows) >= every or stats["committed"] + len(rows) >= lane.quota:
                finish_transaction(args, lane, tenants, manifest)
        else:
            stats["committed"] += 1
            if lane.rate or not made & 1023:
                lane.producer.poll(0)
                lane.check()
                # Without transactions they count as committed when sent: the exit code says whether all arrived.
                manifest.committed(row for _, row in rows)
                rows.clear()
    if every and rows:
        finish_transaction(args, lane, tenants, manifest)
    flush(lane.producer)
    lane.check()
    manifest.committed(row for _, row in rows)


def finish_transaction(args, lane, tenants, manifest):
    stats, rows = lane.stats, lane.rows
    stats["transactions"] += 1
    # Before an abort as well: see end_transaction.
    flush(lane.producer)
    lane.check()
    if args.aborts_every and stats["transactions"] % args.aborts_every == 0:
        retried(lane.producer.abort_transaction)
        stats["transactions_aborted"] += 1
        stats["aborted"] += len(rows)
        for tenant, _ in rows:
            tenants.count[tenant] -= 1
        manifest.aborted(row for _, row in rows)
    else:
        retried(lane.producer.commit_transaction)
        stats["committed"] += len(rows)
        manifest.committed(row for _, row in rows)
    rows.clear()


def put(lane, topic, body, key, partition, headers):
    while True:
        try:
            return lane.producer.produce(topic, body, key, partition, headers=headers)
        except BufferError:
            # Our queue is full: wait for the broker to take some, which is what poll does.
            lane.producer.poll(0.1)
            lane.check()


# ---- readiness of the services ----


def ready(args):
    """For services.sh: until the cluster is whole, takes a SCRAM login, and has its own topics."""
    deadline = time.monotonic() + args.timeout
    plain = connection(args)
    wanted = {int(args.broker)} if args.broker else {1, 2, 3}

    def alive():
        for pid in args.pid:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
            except OSError:
                state = "X"
            if state in "XZ":
                fail("a broker ended while it was starting")

    def attempt(what, probe):
        said = ""
        while True:
            alive()
            try:
                if probe():
                    return
                said = ""
            except KafkaException as e:
                said = f" ({e.args[0].str()})"
            if time.monotonic() > deadline:
                fail(f"{what}: not within {args.timeout} s{said}")
            time.sleep(0.1)

    client = AdminClient(plain)

    def all_in():
        found = client.describe_cluster(request_timeout=3).result(timeout=5)
        return wanted <= {n.id for n in found.nodes}

    # A single broker is asked itself: the others may be down, and a client that took one of those for the controller waits for it.
    if not args.broker:
        attempt("the brokers to know each other", all_in)
    addresses = plain["bootstrap.servers"].split(",")
    for number in wanted:
        one = AdminClient(plain | {"bootstrap.servers": addresses[number - 1]})
        attempt(f"broker {number} to answer", lambda one=one, number=number: number in one.list_topics(timeout=3).brokers)
    if args.broker:
        return
    args.sasl = True
    secure = AdminClient(connection(args))
    attempt("a SCRAM login over TLS", lambda: len(secure.list_topics(timeout=3).brokers) == 3)
    args.sasl = False
    # Made now, while all three brokers are there: a test that begins by taking one away could not make them.
    producer = Producer(plain | {"transactional.id": "ready", "transaction.timeout.ms": 10_000})
    attempt("the transaction coordinator", lambda: producer.init_transactions(10) is None)
    attempt("the group coordinator", lambda: group_offsets(args, "ready") is not None)
    attempt("the brokers' own topics", lambda: own_topics(client))


def own_topics(client):
    states = topic_states(client, ["__consumer_offsets", "__transaction_state"])
    return all(s and all(len(p.isr) == 3 for p in s.partitions) for s in states.values())


# ---- the command line ----


def parser():
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--brokers", help="host:port,...")
    top.add_argument("--sasl", action="store_true", help="use the SASL_SSL listeners")
    top.add_argument("--mechanism", default="SCRAM-SHA-256", choices=["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    top.add_argument("--user")
    top.add_argument("--password")
    top.add_argument("--ca", help="PEM file")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name, run, text):
        p = verbs.add_parser(name, help=text, description=text)
        p.set_defaults(run=run)
        return p

    p = verb("create-topic", create_topic, "create topics and wait until they have leaders")
    p.add_argument("name", nargs="+")
    p.add_argument("--partitions", type=int, default=1)
    p.add_argument("--replication", type=int, default=1)
    p.add_argument("--assignment", help="brokers of each partition, the first leads: 1:2,2:3,3:1")
    p.add_argument("--config", nargs="*", default=[], metavar="K=V")

    p = verb("delete-topic", delete_topic, "delete topics and wait until they are gone")
    p.add_argument("name", nargs="+")

    p = verb("add-partitions", add_partitions, "raise the number of partitions to --partitions")
    p.add_argument("name")
    p.add_argument("--partitions", type=int, required=True)

    p = verb("alter-topic", alter_topic, "set topic settings; an empty value takes one away")
    p.add_argument("name")
    p.add_argument("--config", nargs="+", required=True, metavar="K=V")

    p = verb("delete-records", delete_records, "move the log start of a partition up to an offset (-1: the end)")
    p.add_argument("name")
    p.add_argument("partition", type=int)
    p.add_argument("offset", type=int)

    p = verb("right", right, "let a user read a topic, and nobody else who is not named as well")
    p.add_argument("name")
    p.add_argument("user_name")
    p.add_argument("--take", action="store_true", help="take the right away")

    p = verb("scram-user", scram_user, "make a user or change the password")
    p.add_argument("user_name")
    p.add_argument("new_password")
    p.add_argument("--bits", type=int, choices=[256, 512], required=True)

    p = verb("describe", describe, "topic id, leaders, replicas and in-sync replicas")
    p.add_argument("name", nargs="+")

    p = verb("move-leader", move_leader, "let another broker lead; without --to the next replica")
    p.add_argument("name")
    p.add_argument("--partition", type=int)
    p.add_argument("--to", type=int, choices=[1, 2, 3])

    p = verb("wait-isr", wait_isr, "wait until all replicas are in sync")
    p.add_argument("name", nargs="*")
    p.add_argument("--timeout", type=float, default=60)

    p = verb("group", group, "committed offsets of a consumer group")
    p.add_argument("group")

    p = verb("watermarks", watermarks, "low, high and last stable offset of each partition")
    p.add_argument("name", nargs="+")

    p = verb("consume", consume, "print the committed records of a topic")
    p.add_argument("name")
    p.add_argument("--timeout", type=float, default=60)

    p = verb("records", records, "produce the records of a JSON lines file (- is standard input)")
    p.add_argument("file")
    p.add_argument("--compression", default="none", choices=CODECS)
    p.add_argument("--transaction", default="none", choices=["none", "commit", "abort", "hang"])
    p.add_argument("--transactional-id")
    p.add_argument("--transaction-timeout-ms", type=int, default=60_000)
    p.add_argument("--linger", type=float, default=5, help="milliseconds; large: more records share a batch")

    p = verb("load", load, "produce many events, with a manifest of what was committed")
    p.add_argument("--events", type=int, required=True, help="how many are committed in the end")
    p.add_argument("--tenants", type=int, default=200)
    p.add_argument("--topics", default=f"{PREFIX}lender", help="comma separated; a tenant has one topic and one partition")
    p.add_argument("--partitions", type=int, default=1, help="partitions of each topic (they must exist)")
    p.add_argument("--body-bytes", type=int, default=600)
    p.add_argument("--transactions-every", type=int, default=0, metavar="K", help="events in a transaction; 0: none")
    p.add_argument("--aborts-every", type=int, default=0, metavar="M", help="each M-th transaction is aborted; 0: none")
    p.add_argument("--compression", default="none", help=f"{', '.join(CODECS)}, a comma separated mix, or mixed")
    p.add_argument("--linger", type=float, default=5)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--rate", type=float, default=0, help="events per second; 0: as fast as it goes")
    p.add_argument("--window", type=int, default=0, help="records on their way at most; standard input says how many arrived; 0: any")
    p.add_argument("--tenant-prefix", default="tenant-", help="of their names, before the number")
    p.add_argument("--checksums", action="store_true", help="one more column in the manifest: CRC-32 of the body")
    p.add_argument("--manifest", help="ce-id,tenant,topic,partition,n of each committed event; FILE.aborted has the others")

    p = verb("ready", ready, "for services.sh: wait until the cluster is whole")
    p.add_argument("--timeout", type=float, default=120)
    p.add_argument("--broker")
    p.add_argument("--pid", action="append", default=[])
    return top


def main():
    args = parser().parse_args()
    try:
        args.run(args)
    except KafkaException as e:
        fail(e.args[0].str() if e.args and isinstance(e.args[0], KafkaError) else str(e))
    except TimeoutError:
        fail(f"no answer in time{why()}")


if __name__ == "__main__":
    main()
