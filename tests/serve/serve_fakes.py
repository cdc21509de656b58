"""A stand-in for the command line: it does what the model is called."""

FAKE = '''
import json, os, shutil, signal, sys, time

plan, verb, does, *rest = sys.argv[1:]
events, output = (rest[rest.index(one) + 1] if one in rest else os.devnull for one in ("--events", "-o"))
file = open(events, "a")

def tell(kind, **more):
    file.write(json.dumps({"t": 0.0, "kind": kind, **more}) + "\\n")
    file.flush()

def keep(*_):
    shutil.copy(plan, output)
    tell("end", exit=0, written=[output], interrupted=bool(_))
    sys.exit(0)

tell("begin", verb=verb, start="--start" in rest)
tell("improvement", objective=9.0, bound=5.0, bound_name="by hand", scope="", evaluations=1, found_by="fake")
tell("heartbeat", objective=9.0)
tell("incumbent", placement="", objective=9.0)
if does == "finish":
    keep()
elif does == "wait":
    signal.signal(signal.SIGINT, keep)
    time.sleep(60)
elif does == "stubborn":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(60)
elif does == "slow":
    time.sleep(1.0)
    keep()
elif does == "bad":
    print("stead: note: this is nothing", file=sys.stderr)
    print("stead: no device '3099'; did you mean '3090'?", file=sys.stderr)
    sys.exit(2)
elif does == "crash":
    os.kill(os.getpid(), signal.SIGKILL)
elif does == "disagree":
    print(json.dumps({"failed": True}))
    sys.exit(4)
elif does == "infeasible":
    tell("end", exit=3, message="nothing fits", fixes=["--batch 1 (now 2)"])
    sys.exit(3)
'''
