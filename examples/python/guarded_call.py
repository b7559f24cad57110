"""One call under the gate: ask for leave, show what needs consent, run it, report how it ended. See README.md."""

import argparse
import json
import sys

import grpc
from pointsman.v1 import gate_pb2 as pb
from pointsman.v1 import gate_pb2_grpc


def run_tool(name, arguments, key):
    """Stands for your own tools. A real one hands the key on, so that its backend knows a repetition too."""
    print(f"run {name} {json.dumps(arguments, ensure_ascii=False)} (key {key})")
    return {"done": True, "note": "made up by the example"}


def guarded_call(gate, wish, consents):
    """Runs the call at most once and returns its result as the model should see it, or the reason why it did not run."""
    answer = gate.Authorize(pb.AuthorizeRequest(wish=wish), timeout=10)
    verdict = answer.WhichOneof("verdict")
    if verdict == "confirm":
        consent = answer.confirm
        print(f"confirm {consent.tool}: {consent.what}\n  {consent.arguments_json}")
        if not consents():
            gate.Confirm(pb.ConfirmRequest(call_id=consent.call_id, confirm_token=consent.confirm_token, agreed=False))
            return "called off"
        # The same wish with the token: anything else in it would be refused.
        wish.confirm_token = consent.confirm_token
        answer = gate.Authorize(pb.AuthorizeRequest(wish=wish), timeout=10)
        verdict = answer.WhichOneof("verdict")
    if verdict == "go":
        report = pb.CompleteRequest(call_id=answer.go.call_id)
        try:
            result = run_tool(wish.tool, json.loads(answer.go.arguments_json), answer.go.idempotency_key)
            report.result_json = json.dumps(result, ensure_ascii=False)
        except TimeoutError:
            report.lost = True  # it may have taken effect: the gate will not let it run again
        done = gate.Complete(report, timeout=10)
        return done.outcome.result_json or f"refused: {done.refused.message}"
    if verdict == "replay":
        return f"done before: {answer.replay.result_json}"
    if verdict == "refused":
        return f"refused: {answer.refused.code}: {answer.refused.message}"
    if verdict == "handoff":
        return f"hand over to a person: {answer.handoff.message}"
    return verdict


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool")
    parser.add_argument("arguments", help="JSON")
    parser.add_argument("--address", default="127.0.0.1:50051")
    parser.add_argument("--session", default="example")
    parser.add_argument("--yes", action="store_true", help="agree to what needs consent")
    options = parser.parse_args()
    asks = sys.stdin.isatty()
    consents = lambda: options.yes or (asks and input("run this? [y/N] ").strip().lower() == "y")
    wish = pb.Wish(tool=options.tool, arguments_json=options.arguments, session_id=options.session)
    with grpc.insecure_channel(options.address) as channel:
        try:
            print(guarded_call(gate_pb2_grpc.GateStub(channel), wish, consents))
        except grpc.RpcError as error:
            sys.exit(f"{error.code().name}: {error.details()}")


if __name__ == "__main__":
    main()
