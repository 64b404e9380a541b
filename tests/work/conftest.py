"""Small valid files of every trace format, made up here, for the readers to read and the fuzzer to break."""

import json
from pathlib import Path

import pytest

LATENCIES = """model,batch,slice,samples,mean_s,median_s
resnet,128,1g.5gb,10,0.4,0.4
resnet,128,3g.20gb,10,0.16,0.16
resnet,128,7g.40gb,10,0.1,0.1
bert,4,2g.10gb,10,0.9,0.9
bert,4,7g.40gb,10,0.3,0.3
gizmo,1,7g.40gb,10,2.0,2.0
"""

MISO = {
    "job_models.json": json.dumps({"0": "resnet_train128", "1": "bert_train4", "2": "gizmo_train1"}),
    "num_iters.json": json.dumps({"0": 1000, "1": 500, "2": 30}),
    "mig_batch_latency.csv": LATENCIES,
}

PHILLY_LOG = [
    {
        "status": "Pass",
        "vc": "a1",
        "jobid": "application_1",
        "attempts": [
            {
                "start_time": "2017-10-07 01:12:00",
                "end_time": "2017-10-07 01:13:00",
                "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}],
            },
            {"start_time": "2017-10-07 01:20:00", "end_time": "2017-10-07 01:25:00", "detail": []},
        ],
        "submitted_time": "2017-10-07 01:11:00",
        "user": "u1",
    },
    {
        "status": "Killed",
        "vc": "a1",
        "jobid": "application_2",
        "attempts": [],
        "submitted_time": "2017-10-07 01:00:00",
        "user": "u2",
    },
    {
        "status": "Failed",
        "vc": "b2",
        "jobid": "application_3",
        "attempts": [
            {
                "start_time": "2017-10-07 01:30:00",
                "end_time": "2017-10-07 01:30:30",
                "detail": [{"ip": "m1", "gpus": ["gpu7"]}],
            }
        ],
        "submitted_time": "2017-10-07 01:10:00",
        "user": "u1",
    },
    {
        "status": "Pass",
        "vc": "b2",
        "jobid": "application_4",
        "attempts": [
            {"start_time": "2017-10-07 02:00:00", "end_time": None, "detail": [{"ip": "m1", "gpus": ["gpu7"]}]}
        ],
        "submitted_time": "2017-10-07 01:10:00",
        "user": "u1",
    },
]

SAMPLES: dict[str, str] = {
    "pollux": """name,time,application,num_replicas,batch_size
cifar10-0,107,cifar10,6,2048
ncf-1,90,ncf,1,32768
""",
    "philly": """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,aa
2017-10-09 06:01:55,2951.0,8,23608.0,bb
2017-10-09 06:01:55,10.0,2,20.0,aa
2017-10-09 06:00:00,0.0,2,0.0,aa
""",
    "philly log": json.dumps(PHILLY_LOG, indent=1),
    "helios": """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
12,ua,va,8,64,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 19:41:01,3600,0
13,ub,va,0,4,1,COMPLETED,2020-06-09 18:40:00,2020-06-09 18:40:00,2020-06-09 18:41:00,60,0
14,ub,vb,1,4,1,FAILED,2020-06-09 18:41:31,2020-06-09 18:42:00,2020-06-09 18:43:00,60,29
15,ub,vb,1,4,1,CANCELLED,2020-06-09 18:41:40,None,2020-06-09 18:41:50,0,0
""",
    "openb": """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,\
scheduled_time
pod-0,12000,16384,1,1000,,Burstable,Running,100,1100,150
pod-1,6000,12288,1,460,V100M16|V100M32,LS,Running,90,500,90
pod-2,20000,65536,0,0,,LS,Running,80,900,80
pod-3,88000,327680,8,1000,,BE,Succeeded,200,260,210
pod-4,11908,47104,1,1000,,BE,Pending,300,360,
""",
    "jsonl": """{"id": "a", "length_s": 60}
{"id": "b", "submit_s": 5, "kind": "elastic", "gpus": 2, "min_gpus": 1, "max_gpus": 8, "workload": "bert", "batch": 9}

{"id": "c", "submit_s": 2.5, "kind": "sliceable", "mem_mib": 4000, "length_s": 9, "extra": {"user": "me"}}
""",
    "yaml": """jobs:
  - name: a
    memory: 12G
    length: 2h
  - {name: b, min_gpus: 1, max_gpus: 4, submit: 1m, count: 2}
services:
  - name: s
    workload: resnet50
    rate: 100
    p99: 40ms
""",
}


@pytest.fixture(scope="session")
def samples() -> dict[str, str]:
    """Text of a small valid file, by name: every format that is one file, and "philly log"."""
    return SAMPLES


@pytest.fixture
def sample_path(tmp_path: Path) -> dict[str, Path]:
    """Those files on disk, and a MISO folder under "miso"."""
    paths = {name: tmp_path / name.replace(" ", "_") for name in [*SAMPLES, "miso"]}
    for name, text in SAMPLES.items():
        paths[name].write_text(text)
    paths["miso"].mkdir()
    for name, text in MISO.items():
        (paths["miso"] / name).write_text(text)
    return paths


@pytest.fixture(scope="session")
def miso_files() -> dict[str, str]:
    return MISO
