"""How many texts a server encodes, and how long its clients wait, beside encoding the same texts one by one.

Starts ``vtkit serve MODEL`` on this machine and lets some clients at once send a text after another for a while. Every
answer is compared with ``encode`` of all texts together. One by one is the same encoder in this process, a text at a
time; the processor's time is given beside the clock's.

    python tests/benchmarks/serving.py MODEL [--clients 50] [--seconds 60] [--prompt document]
"""

import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

import numpy as np
from measuring import options

from vtkit.encoder.checkpoint import load_encoder
from vtkit.encoder.sides import encode_side

TOLERANCE = 1e-4
"""Of a weight: batches of other sizes are summed in another order."""


def client(port: int, prompt: str, texts: list[str], wanted: np.ndarray, until: float, start: int) -> list[float]:
    """Seconds of each answer; the process ends where an answer is another than ``wanted``."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    found = []
    number = start
    while time.monotonic() < until:
        number = (number + 1) % len(texts)
        begun = time.monotonic()
        body = json.dumps({"inputs": texts[number], "prompt_name": prompt})
        connection.request("POST", "/embed_sparse", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        found.append(time.monotonic() - begun)
        row = np.zeros(wanted.shape[1], dtype=np.float32)
        if answer.status == 200:
            for entry in json.loads(text)[0]:
                row[entry["index"]] = entry["value"]
        if answer.status != 200 or np.abs(row - wanted[number]).max() > TOLERANCE:
            print(
                f"text {number}: status {answer.status}, off by {np.abs(row - wanted[number]).max()}", file=sys.stderr
            )
            os._exit(1)
    connection.close()
    return found


def measured_by(port: int, name: str) -> list[float]:
    """The values of one of the server's metrics."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return [float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)]


def percentile(values: list[float], share: float) -> float:
    """In milliseconds."""
    return 1000 * sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> None:
    parser = options(__doc__, clients=50, seconds=60.0)
    parser.add_argument("model")
    parser.add_argument("--prompt", choices=["query", "document"], default="document")
    given = parser.parse_args()
    encoder = load_encoder(given.model)
    draw = random.Random(0)
    words = [token for token in encoder.tokenizer.get_vocab() if token.isalpha()]
    texts = [" ".join(draw.choices(words, k=draw.randint(5, 80))) for _ in range(500)]
    longest = encoder.max_seq_length or 512
    wanted = encode_side(encoder, texts, given.prompt, longest).toarray()

    alone: list[float] = []
    used = time.process_time()
    until = time.monotonic() + min(given.seconds, 15)
    while time.monotonic() < until:
        begun = time.monotonic()
        encode_side(encoder, [texts[len(alone) % len(texts)]], given.prompt, longest)
        alone.append(time.monotonic() - begun)
    used = time.process_time() - used

    server = subprocess.Popen(
        [sys.executable, "-m", "vtkit", "serve", given.model, "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    port = int(re.findall(r":(\d+)$", server.stdout.readline().strip())[0])
    used_before = measured_by(port, "process_cpu_seconds_total")[0]
    waits: list[list[float]] = []
    until = time.monotonic() + given.seconds

    def ask(number: int) -> None:
        waits.append(client(port, given.prompt, texts, wanted, until, number * 7))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(given.clients)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begun
    requests, batches = (sum(measured_by(port, f"vtkit_batch_requests_{name}")) for name in ("sum", "count"))
    memory = measured_by(port, "process_resident_memory_bytes")[0]
    used_served = measured_by(port, "process_cpu_seconds_total")[0] - used_before
    server.send_signal(signal.SIGTERM)
    code = server.wait()

    all_waits = [wait for each in waits for wait in each]
    result = {
        "texts_per_second_alone": round(len(alone) / sum(alone), 1),
        "p99_ms_alone": round(percentile(alone, 0.99), 1),
        "processor_ms_a_text_alone": round(1000 * used / len(alone), 1),
        "texts_per_second_served": round(len(all_waits) / seconds, 1),
        "p50_ms_served": round(1000 * statistics.median(all_waits), 1),
        "p99_ms_served": round(percentile(all_waits, 0.99), 1),
        "processor_ms_a_text_served": round(1000 * used_served / len(all_waits), 1),
        "requests_per_batch": round(requests / batches, 1),
        "resident_mb": round(memory / 1e6),
        "exit_code": code,
    }
    print(
        f"one by one {result['texts_per_second_alone']} texts/s, p99 {result['p99_ms_alone']} ms, "
        f"{result['processor_ms_a_text_alone']} ms of processor a text; {given.clients} clients "
        f"{result['texts_per_second_served']} texts/s, p50 {result['p50_ms_served']} ms, p99 "
        f"{result['p99_ms_served']} ms, {result['processor_ms_a_text_served']} ms of processor a text, "
        f"{result['requests_per_batch']} requests a batch; {len(all_waits):,} answers, all equal to encode"
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
