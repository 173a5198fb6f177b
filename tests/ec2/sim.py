#!/usr/bin/env python3
"""EC2 for tests: moto, made as strict as EC2 is about volumes, with instance metadata (version 2) and with faults on order.

moto alone lets any instance take an attached volume, ignores zone, device name and instance state, and knows no `attaching`.
Here AttachVolume refuses what EC2 refuses, with EC2's codes, and takes the time it is told to take.

    sim.py [--sys DIR]

Prints one line of JSON when it listens: {"url": ...}. It ends when its standard input does: a test that dies takes it along.

`--sys DIR` is the fake /sys of a test. DIR/volumes/VOL holds `name` (a loop device's) and `number` (`7:3`), and DIR/devices/NAME
that device's directory: while the volume is attached to `--sys`'s instance (/rig/machine), it is linked into DIR/class/block
and DIR/dev/block, and so is there for whoever looks.

Control, all POST with a JSON body, answering JSON:
    /rig/instance   {"zone"}                                             -> {"id", "metadata"}: an instance, and its metadata's URL
    /rig/volume     {"zone", "size", "tags", "encrypted", "snapshot", "multi_attach", "hours"}   -> {"id"}; `hours` old
    /rig/machine    {"instance"}                                         the instance that the fake /sys belongs to
    /rig/attach     {"volume", "instance", "device", "state", "delete"}  an attachment as it stands, no questions asked
    /rig/detach     {"volume"}                                           at once
    /rig/attachment {"volume", "state"}                                  another attachment state, or `"also": INSTANCE`
    /rig/volume-state    {"volume", "state"}                             creating, error, deleting, ...; null: what moto says
    /rig/instance-state  {"instance", "state"}                           running, shutting-down, terminated, ...
    /rig/delay      {"attach": seconds, "lag": seconds}                  `attaching` for so long; unseen by Describe* for so long
    /rig/fault      {"action", "code", "status", "times", "done", "delay"}   an error instead of an answer; `done`: after doing
                    it; without `code` the connection just ends
    /rig/metadata   {"instance", "off", "delay"}                         how an instance's metadata behaves
    /rig/off        {"off": bool, "page": n}                            EC2 answers nobody; volumes in one answer
    /rig/tags       {"volume"}                                           -> what it is tagged with
    /rig/snapshots  {}                                                   -> what each snapshot is tagged with
    /rig/calls      {}                                                   -> the actions asked for so far, in order
"""
import argparse
import io
import json
import os
import re
import secrets
import sys
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

os.environ.setdefault("AWS_ACCESS_KEY_ID", "rig")
os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "rig")
os.environ.setdefault("MOTO_ALLOW_NONEXISTENT_REGION", "true")

from moto.core.utils import utcnow  # noqa: E402
from moto.ec2.exceptions import EC2ClientError  # noqa: E402
from moto.ec2.models import ec2_backends  # noqa: E402
from moto.ec2.models.block_device import BlockDeviceType  # noqa: E402
from moto.ec2.models.elastic_block_store import EBSBackend, Volume, VolumeAttachment  # noqa: E402
from moto.ec2.models.instances import InstanceState  # noqa: E402
from moto.ec2.responses.elastic_block_store import ElasticBlockStore  # noqa: E402
from moto.core.responses import ActionResult  # noqa: E402
from moto.server import DomainDispatcherApplication, create_backend_app  # noqa: E402
from werkzeug.serving import make_server  # noqa: E402

ACCOUNT = "123456789012"
REGION = "eu-west-1"
LOCK = threading.RLock()
DELAY = {"attach": 0.0, "lag": 0.0}
FAULTS = []
CALLS = []
SWITCH = {"off": False}
FORCED = {}  # volume -> state
UNSEEN = {}  # volume -> until when Describe* does not show its attachment
METADATA = {}  # instance -> behaviour
MACHINE = {"instance": None}
STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
NAMES = re.compile(r"(/dev/)?(sd[b-z][1-9]?[0-9]?|xvd[b-d][a-z]|xvd[b-z])")
MOST = 27

ARGS = argparse.ArgumentParser()
ARGS.add_argument("--sys")
ARGS = ARGS.parse_args()


class Refused(EC2ClientError):
    """EC2's codes are what counts; nothing may depend on these texts."""

    def __init__(self, code, message, status=400):
        super().__init__(code, message)
        self.code = code
        self.status = status


def backend():
    return ec2_backends[ACCOUNT][REGION]


# --- the fake /sys ----------------------------------------------------------------------------------------------------


def appear(volume_id, instance_id):
    """The device of an attached volume comes, where there is one."""
    if not ARGS.sys or instance_id != MACHINE["instance"]:
        return
    about = os.path.join(ARGS.sys, "volumes", volume_id)
    if not os.path.isdir(about):
        return
    name, number = (open(os.path.join(about, part)).read().strip() for part in ("name", "number"))
    device = os.path.join(ARGS.sys, "devices", name)
    for link in (os.path.join(ARGS.sys, "dev/block", number), os.path.join(ARGS.sys, "class/block", name)):
        if not os.path.islink(link):
            os.symlink(device, link)


def vanish(volume_id):
    if not ARGS.sys:
        return
    about = os.path.join(ARGS.sys, "volumes", volume_id)
    if os.path.isdir(about):
        name, number = (open(os.path.join(about, part)).read().strip() for part in ("name", "number"))
        for link in (os.path.join(ARGS.sys, "class/block", name), os.path.join(ARGS.sys, "dev/block", number)):
            if os.path.islink(link):
                os.unlink(link)


# --- EC2, strict ------------------------------------------------------------------------------------------------------


def letters(name):
    return re.sub(r"^(/dev/)?(sd|xvd)", "", name)


def attach(volume, instance, device, state, delete=False):
    """As it will stand, no questions asked."""
    attachment = VolumeAttachment(volume, instance, device, state)
    attachment.delete_on_termination = delete
    volume.attachment = attachment
    instance.block_device_mapping[device] = BlockDeviceType(
        volume_id=volume.id, status=state, size=volume.size, attach_time=utcnow(), delete_on_termination=delete
    )
    return attachment


def attach_volume(self, volume_id, instance_id, device_path, delete_on_termination=False):
    with LOCK:
        if not re.fullmatch(r"vol-([0-9a-f]{8}|[0-9a-f]{17})", volume_id or ""):
            raise Refused("InvalidVolumeID.Malformed", f"Invalid id: {volume_id}")
        volume, instance = self.get_volume(volume_id), self.get_instance(instance_id)
        if device_path == getattr(instance, "root_device_name", None) and device_path not in instance.block_device_mapping:
            return attach(volume, instance, device_path, "attached", delete_on_termination)
        if instance._state.name not in ("running", "stopped"):
            raise Refused("IncorrectState", f"Instance '{instance_id}' is not 'running'.")
        state = FORCED.get(volume_id)
        if state not in (None, "available", "in-use"):
            raise Refused("IncorrectState", f"{volume_id} is not 'available'.")
        if volume.attachment:
            raise Refused("VolumeInUse", f"{volume_id} is already attached to an instance")
        if volume.zone.name != instance._placement.zone:
            raise Refused("InvalidVolume.ZoneMismatch", f"The volume '{volume_id}' is not in the same availability zone.")
        if not NAMES.fullmatch(device_path or ""):
            raise Refused("InvalidParameterValue", f"Value ({device_path}) for parameter device is invalid.")
        if letters(device_path) in [letters(name) for name in instance.block_device_mapping]:
            raise Refused("InvalidParameterValue", f"Attachment point {device_path} is already in use")
        if len(instance.block_device_mapping) >= MOST:
            raise Refused("AttachmentLimitExceeded", f"Instance {instance_id} has as many volumes as it can have.")
        attachment = attach(volume, instance, device_path, "attaching", delete_on_termination)
        UNSEEN[volume_id] = time.monotonic() + DELAY["lag"]

    def done():
        with LOCK:
            if volume.attachment is attachment and attachment.status == "attaching":
                attachment.status = instance.block_device_mapping[device_path].status = "attached"
                appear(volume_id, instance_id)

    if DELAY["attach"] <= 0:
        done()
    else:
        timer = threading.Timer(DELAY["attach"], done)
        timer.daemon = True
        timer.start()
    return attachment


def detach_now(volume):
    attachment = volume.attachment
    if attachment:
        attachment.instance.block_device_mapping.pop(attachment.device, None)
        volume.attachment = None
        vanish(volume.id)
    return attachment


def detach_volume(self, volume_id, instance_id=None, device_path=None):
    # Nobody here may: volhold never does, and tests use /rig/detach.
    raise Refused("UnauthorizedOperation", "DetachVolume is never called by what is tested here", 403)


def seen(volume):
    return time.monotonic() >= UNSEEN.get(volume.id, 0)


def attachments(volume):
    with LOCK:
        own = [volume.attachment] if volume.attachment and seen(volume) else []
        return own + getattr(volume, "also", [])


def status(volume):
    return FORCED.get(volume.id) or ("in-use" if attachments(volume) else "available")


def describe_volumes(self):
    """With pages, as EC2 has them."""
    volumes = self.ec2_backend.describe_volumes(
        volume_ids=self._get_param("VolumeIds", []), filters=self._filters_from_querystring()
    )
    start = int(self._get_param("NextToken") or 0)
    size = int(self._get_param("MaxResults") or 1000)
    page = SWITCH.get("page") or size
    token = str(start + page) if start + page < len(volumes) else None
    return ActionResult({"Volumes": volumes[start : start + page], "NextToken": token})


EBSBackend.attach_volume, EBSBackend.detach_volume = attach_volume, detach_volume
Volume.attachments, Volume.status = property(attachments), property(status)
ElasticBlockStore.describe_volumes = describe_volumes


# --- instance metadata, version 2 -------------------------------------------------------------------------------------


def metadata_of(instance):
    """A server of its own for each instance, as each has its own at 169.254.169.254."""
    tokens = {}
    zone = instance._placement.zone
    behaviour = METADATA.setdefault(instance.id, {"off": False, "delay": 0.0, "secret": None})

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def answer(self, code, text=""):
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            if self.command == "PUT":
                self.send_header("X-aws-ec2-metadata-token-ttl-seconds", self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", ""))
            self.end_headers()
            self.wfile.write(body)

        def gone(self):
            time.sleep(behaviour["delay"])
            if behaviour["off"]:
                self.close_connection = True
                self.connection.close()
            return behaviour["off"]

        def do_PUT(self):
            if self.gone():
                return
            life = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            if self.path != "/latest/api/token" or not life.isdigit():
                return self.answer(400)
            token = secrets.token_urlsafe(32)
            tokens[token] = time.monotonic() + int(life)
            self.answer(200, token)

        def do_GET(self):
            if self.gone():
                return
            if tokens.get(self.headers.get("X-aws-ec2-metadata-token"), 0) < time.monotonic():
                return self.answer(401)
            meta = "/latest/meta-data/"
            secret = behaviour["secret"] or "rig-secret"
            credentials = {
                "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": "ASIARIG", "SecretAccessKey": secret,
                "Token": f"token-{secret}", "LastUpdated": "2026-01-01T00:00:00Z", "AccountId": ACCOUNT,
                "Expiration": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600)),
            }
            roles = ("iam/security-credentials", "iam/security-credentials-extended")
            known = {
                meta + "instance-id": instance.id,
                meta + "placement/availability-zone": zone,
                meta + "placement/region": zone[:-1],
                **{meta + role: "k8s-master" for role in roles},
                **{meta + role + "/k8s-master": json.dumps(credentials) for role in roles},
            }
            found = known.get(self.path.rstrip("/"))
            self.answer(404) if found is None else self.answer(200, found)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


# --- control ----------------------------------------------------------------------------------------------------------


def new_instance(zone):
    reservation = backend().run_instances(
        "ami-12c6146b", 1, "", [], is_instance_type_default=True, placement=zone, tags={}, instance_type="m5.large"
    )
    instance = reservation.instances[0]
    instance._placement.zone = zone
    return {"id": instance.id, "metadata": metadata_of(instance)}


def new_volume(zone, size=1, tags=None, encrypted=False, snapshot=False, multi_attach=False, hours=0):
    volume = backend().create_volume(size=size, zone_name=zone, encrypted=encrypted)
    volume.add_tags(tags or {})
    volume.snapshot_id = "snap-0123456789abcdef0" if snapshot else ""
    volume.multi_attach_enabled = multi_attach
    volume.create_time = utcnow() - timedelta(hours=hours)
    return {"id": volume.id}


def rig(what, order):
    volume = backend().get_volume(order["volume"]) if "volume" in order else None
    instance = backend().get_instance(order["instance"]) if order.get("instance") else None
    if what == "instance":
        return new_instance(**order)
    if what == "volume":
        return new_volume(**order)
    if what == "machine":
        MACHINE["instance"] = instance.id
    elif what == "attach":
        attach(volume, instance, order.get("device", "/dev/sdf"), order.get("state", "attached"), order.get("delete", False))
        if order.get("state", "attached") == "attached":
            appear(volume.id, instance.id)
    elif what == "detach":
        detach_now(volume)
    elif what == "attachment" and "also" in order:
        volume.also = [VolumeAttachment(volume, backend().get_instance(order["also"]), "/dev/sdz", "attached")]
    elif what == "attachment":
        volume.attachment.status = order["state"]
        if order["state"] == "attached":
            appear(volume.id, volume.attachment.instance.id)
    elif what == "volume-state":
        FORCED[volume.id] = order["state"]
    elif what == "instance-state":
        instance._state = InstanceState(order["state"], STATES[order["state"]])
    elif what == "delay":
        DELAY.update(order)
    elif what == "fault":
        FAULTS.append(order)
    elif what == "metadata":
        METADATA[instance.id].update({key: value for key, value in order.items() if key != "instance"})
    elif what == "off":
        SWITCH.update(order)
    elif what == "tags":
        return volume.get_tags() and {tag["key"]: tag["value"] for tag in volume.get_tags()}
    elif what == "snapshots":
        # moto has some of its own, for the images that it knows.
        own = [taken.get_tags() for taken in backend().snapshots.values()]
        own = [{tag["key"]: tag["value"] for tag in tags} for tags in own]
        return [tags for tags in own if "volhold/guard" in tags]
    elif what == "calls":
        return list(CALLS)
    else:
        raise KeyError(what)
    return {}


def fault_for(action):
    with LOCK:
        for fault in FAULTS:
            if fault["action"] in (action, "*") and fault.get("times", 1) > 0:
                fault["times"] = fault.get("times", 1) - 1
                return fault
    return None


class Front:
    """In front of moto: control, faults, and what is counted."""

    def __init__(self):
        self.moto = DomainDispatcherApplication(create_backend_app)

    def __call__(self, env, start):
        body = env["wsgi.input"].read(int(env.get("CONTENT_LENGTH") or 0))
        env["wsgi.input"] = io.BytesIO(body)
        path = env["PATH_INFO"]
        if path.startswith("/rig/"):
            with LOCK:
                answer = json.dumps(rig(path[len("/rig/"):], json.loads(body or b"{}"))).encode()
            start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))])
            return [answer]
        action = parse_qs(body.decode()).get("Action", [""])[0]
        CALLS.append(action)
        fault = fault_for(action)
        if SWITCH["off"]:
            fault = {}
        if fault is not None:
            time.sleep(fault.get("delay", 0))
            if fault.get("done"):
                list(self.moto(env, lambda *_: None))
            if not fault.get("code"):
                # Nothing comes back: the client cannot know whether it was done.
                env["werkzeug.socket"].close()
                start("502 Gone", [])
                return [b""]
            start(f"{fault.get('status', 400)} Refused", [("Content-Type", "text/xml")])
            return [
                "<?xml version='1.0'?><Response><Errors><Error>"
                f"<Code>{fault['code']}</Code><Message>{fault.get('message', 'as ordered')}</Message>"
                f"</Error></Errors><RequestID>{secrets.token_hex(8)}</RequestID></Response>".encode()
            ]
        return self.moto(env, start)


server = make_server("127.0.0.1", 0, Front(), threaded=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}"}), flush=True)
sys.stdin.read()
