"""Waits up to two minutes until the URL answers with status 200."""

import sys
import time
import urllib.error
import urllib.request

end = time.monotonic() + 120
while True:
    try:
        urllib.request.urlopen(sys.argv[1], timeout=2).close()
        break
    except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
        if time.monotonic() > end:
            sys.exit(f"{sys.argv[1]} is not ready: {error}")
        time.sleep(0.2)
