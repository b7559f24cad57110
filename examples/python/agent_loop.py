"""A conversation loop around the router: one branch for each of the four outcomes. See README.md beside this file."""

import argparse
import json
import sys

import grpc
from pointsman.v1 import router_pb2 as pb
from pointsman.v1 import router_pb2_grpc


def run_tool(name, arguments):
    """Stands for your own tools; a real one checks rights and state once more before it acts."""
    print(f"call {name} {json.dumps(arguments, ensure_ascii=False)}")
    return {"tool": name, "ok": True, "args": arguments, "data": {"note": "made up by the example"}}


def consents(call, arguments, interactive):
    """Whether a person agrees to exactly these arguments. Without a person nothing that needs consent runs."""
    print(f"confirm {call.tool} ({call.side_effect}) {json.dumps(arguments, ensure_ascii=False)}")
    return interactive and input("run this? [y/N] ").strip().lower() == "y"


def take_turn(router, utterance, history, pending, interactive):
    """Routes one utterance, acts on the outcome, and returns the handle of a question that is now open."""
    request = pb.RouteRequest(utterance=utterance, history=history, pending=pending)
    answer = router.Route(request, timeout=10)
    history.append(pb.Turn(role=pb.Turn.ROLE_USER, content=utterance))
    outcome = answer.WhichOneof("outcome")
    if outcome == "call":
        for call in answer.call.calls:
            # The JSON text keeps 64-bit integers exact, which the Struct beside it cannot.
            arguments = json.loads(call.arguments_json)
            if call.needs_confirmation and not consents(call, arguments, interactive):
                print(f"not run: {call.tool}")
                continue
            result = json.dumps(run_tool(call.tool, arguments), ensure_ascii=False)
            history.append(pb.Turn(role=pb.Turn.ROLE_TOOL, content=result))
    elif outcome == "clarify":
        print(f"ask {answer.clarify.question}")
        history.append(pb.Turn(role=pb.Turn.ROLE_ASSISTANT, content=answer.clarify.question))
        return answer.clarify.pending
    elif outcome == "no_tool":
        print(f"no tool ({answer.no_tool.reason}): let the model answer without one")
    elif outcome == "handoff":
        print(f"hand over to a person ({answer.handoff.reason}): {answer.handoff.message}")
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default="127.0.0.1:50051")
    parser.add_argument("--utterance", nargs="+", help="turns of one conversation; otherwise one line of input is one turn")
    options = parser.parse_args()
    interactive = options.utterance is None and sys.stdin.isatty()
    history, pending = [], ""
    with grpc.insecure_channel(options.address) as channel:
        router = router_pb2_grpc.RouterStub(channel)
        for line in options.utterance or sys.stdin:
            if line.strip():
                try:
                    pending = take_turn(router, line.strip(), history, pending, interactive)
                except grpc.RpcError as error:
                    sys.exit(f"{error.code().name}: {error.details()}")


if __name__ == "__main__":
    main()
