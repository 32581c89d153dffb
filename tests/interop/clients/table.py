"""The tables of docs/clients.md."""

import datetime


def worse(client, results):
    """What recovers without the broker, and does not with it."""
    for kind in client.kinds:
        direct, broker = (results[client.name, kind, way] for way in ("direct", "broker"))
        for phase in ("rotation", "expiry", "revocation"):
            if phase in direct and direct[phase]["recovered"] and not broker[phase]["recovered"]:
                yield f"{client.name}, {kind}: {phase}"
        if direct["expiry"]["recovered"]:
            if not broker["restart"]["recovered"]:
                yield f"{client.name}, {kind}: restart of the broker"
            if client.watches and direct["watch"]["lost"] < broker["watch"]["lost"]:
                yield f"{client.name}, {kind}: events lost"


def broken(client, results):
    """What does not work through the proxy."""
    for (name, kind, way), result in results.items():
        if name != client.name or "secrets" not in result:
            continue
        for phase in ("rotation", "expiry", "restart", "revocation"):
            if phase in result and not result[phase]["recovered"]:
                yield f"{name}, {kind}, {way}: {phase}"
        if client.watches and result["watch"]["lost"]:
            yield f"{name}, {kind}, {way}: {result['watch']['lost']} events lost"
        for place in result["secrets"]["client"]:
            yield f"{name}, {kind}, {way}: the credential is here: {place}"


def outcome(phases):
    """Failed requests, or that the client never recovers."""
    return str(sum(phase["failed"] for phase in phases)) if all(phase["recovered"] for phase in phases) else "**stops**"


class Row:
    """The cells of one client, which are `direct / broker`, or one value if they are equal."""

    def __init__(self, client, results):
        self.client = client
        self.results = {
            way: {kind: results[client.name, kind, way] for kind in client.kinds} for way in ("direct", "broker")
        }

    def __str__(self):
        cells = [
            self.client.name,
            self.pair(lambda results: str(sum(result["runs"] for result in results.values()))),
            *(self.of(kind, ("rotation", "expiry")) for kind in ("token", "certificate", "both")),
            self.of("token", ("revocation",)),
            self.restart(),
            self.pair(self.watch) if self.client.watches else "–",
            self.client.advice,
        ]
        return f"| {' | '.join(cells)} |"

    def pair(self, value):
        direct, broker = value(self.results["direct"]), value(self.results["broker"])
        return direct if direct == broker else f"{direct} / {broker}"

    def of(self, kind, phases):
        if kind not in self.client.kinds:
            return "–"
        return self.pair(lambda results: outcome([results[kind][phase] for phase in phases]))

    # A client that stops when its credential expires shows nothing more.

    def restart(self):
        going = [result["restart"] for result in self.results["broker"].values() if result["expiry"]["recovered"]]
        return outcome(going) if going else "–"

    @staticmethod
    def watch(results):
        going = [result["watch"] for result in results.values() if result["expiry"]["recovered"]]
        return ", ".join(str(sum(watch[what] for watch in going)) for what in ("relists", "lost")) if going else "–"


def table(rows, results, note):
    """Markdown. `note` is about clients that could not be run."""
    head = [
        "Client",
        "Plugin runs",
        "Token",
        "Certificate",
        "Both",
        "Token revoked",
        "Broker restarted",
        "Relists, events lost",
        "What to set",
    ]
    lines = [
        f"Measured on {datetime.date.today()}. {note}".strip(),
        "",
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
    ]
    return "\n".join([*lines, *(str(Row(client, results)) for client in rows)])


def proxied_row(client, results):
    def of(way, kind):
        if kind not in client.proxied:
            return "–"
        result = results[client.name, kind, way]
        return outcome([result[phase] for phase in ("rotation", "expiry", "restart", "revocation") if phase in result])

    def of_variable():
        result = results.get((client.name, "token", "port"))
        if not result:
            return "–"
        if result["http_proxy"]["recovered"]:
            return "works"
        return "needs `NO_PROXY`" if result["no_proxy"]["recovered"] else "**stops**, also with `NO_PROXY`"

    watches = "–"
    if client.watches:
        all_of = {(kind, way): results[client.name, kind, way] for kind in client.proxied for way in ("port", "socket")}
        watches = Row.watch(all_of)
    cells = [
        client.name,
        *(of(way, kind) for way in ("port", "socket") for kind in ("token", "certificate")),
        watches,
        of_variable(),
    ]
    return f"| {' | '.join(cells)} |"


def proxied_table(rows, results):
    """Markdown: every client through the proxy."""
    head = [
        "Client",
        "Port, token",
        "Port, certificate",
        "Socket, token",
        "Socket, certificate",
        "Relists, events lost",
        "`HTTPS_PROXY`",
    ]
    lines = [f"Measured on {datetime.date.today()}.", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(proxied_row(client, results) for client in rows if client.proxied)])


def replace(page, name, text):
    """Replaces what is between the markers of a page."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, rest = page.read_text().split(begin)
    _, after = rest.split(end)
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")
