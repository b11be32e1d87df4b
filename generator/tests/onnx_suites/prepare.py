"""Prepares the test data of the Python package onnx for onnx_suites: `prepare.py FOLDER`.

Each case becomes a folder SUITE/CASE with models, inputs and outputs:

    bound.onnx      the graph with all inputs but the first as constants: the weights of a node test are inputs of its graph
    free.onnx       the same with all floating-point inputs left as inputs, if there are several
    <model>.inputs  the values of that model's inputs as fp32
    outputs         the expected values of all outputs as fp32, with their names
    skipped         instead of all of these: why the case is none

The networks of the suite `light` have constants as weights, so their outputs hardly depend on the graph: `light-random` has the
same graphs with seeded random weights, and the outputs of ONNX Runtime.
"""

import pathlib
import struct
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper

SUITES = ["node", "pytorch-converted", "pytorch-operator", "simple"]


class Skipped(Exception):
    """Why a case is not prepared."""


def load_tensor(path):
    tensor = TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
        return numpy_helper.to_array(tensor)
    except Exception as error:
        raise Skipped("its data are no tensors") from error


def own_inputs(graph):
    """The inputs that are no initialisers."""
    constants = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in constants]


def bind(model, values, is_kept):
    """A copy of the model with inputs as constants, but those that are kept."""
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    kept = []
    for index, value in enumerate(own_inputs(model.graph)):
        if is_kept(index, values[value.name]):
            kept.append(value.name)
        else:
            bound.graph.initializer.append(numpy_helper.from_array(values[value.name], value.name))
    names = [value.name for value in bound.graph.input]
    for name in set(names) - set(kept):
        del bound.graph.input[[value.name for value in bound.graph.input].index(name)]
    return bound, kept


def write_tensors(path, names, arrays):
    """For each tensor the bytes of its name and of its values, each after their number."""
    with open(path, "wb") as file:
        for name, array in zip(names, arrays, strict=True):
            for data in [name.encode(), np.ascontiguousarray(array, dtype="<f4").tobytes()]:
                file.write(struct.pack("<Q", len(data)) + data)


def write_model(folder, name, model, kept, values):
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    write_tensors(folder / f"{name}.inputs", kept, [values[key] for key in kept])


def write_outputs(folder, model, outputs):
    write_tensors(folder / "outputs", [value.name for value in model.graph.output], outputs)


def prepare_case(source, folder):
    """A case of a suite whose cases are folders."""
    model = onnx.load(source / "model.onnx")
    data = source / "test_data_set_0"
    inputs = own_inputs(model.graph)
    values = {}
    for index, value in enumerate(inputs):
        path = data / f"input_{index}.pb"
        if path.exists() and value.type.HasField("tensor_type"):
            values[value.name] = load_tensor(path)
        else:
            raise Skipped("its inputs are no tensors")
    outputs = [load_tensor(data / f"output_{index}.pb") for index in range(len(model.graph.output))]
    arrays = list(values.values())[:1] + outputs
    if not arrays or any(array.dtype != np.float32 for array in arrays):
        raise Skipped("its first input or an output is not fp32")
    write_model(folder, "bound", *bind(model, values, lambda index, _: index == 0), values)
    is_float = [array.dtype == np.float32 and array.ndim > 0 for array in values.values()]
    if sum(is_float) > 1:
        write_model(folder, "free", *bind(model, values, lambda _, array: array.dtype == np.float32 and array.ndim > 0), values)
    write_outputs(folder, model, outputs)


def dummy_input(value):
    """The input for which the package has the outputs of its networks."""
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


def randomised(model, generator):
    """The model with random weights of a size that keeps activations in range."""
    model = onnx.shape_inference.infer_shapes(model)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weights = {}
    statistics = {}
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm"):
            weights.update({name: "weight" for name in node.input[1:2]})
        if node.op_type == "BatchNormalization":
            statistics.update(zip(node.input[1:], ["scale", "bias", "mean", "var"]))
    filled = {}
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            filled[node.output[0]] = tuple(constants[node.input[0]])
    shapes = {name: array.shape for name, array in constants.items() if array.dtype == np.float32}
    shapes.update(filled)
    graph = model.graph
    replaced = []
    for name, shape in shapes.items():
        kind = weights.get(name) or statistics.get(name)
        if kind == "weight":
            fan_in = int(np.prod(shape[1:]))
            array = generator.standard_normal(shape) * np.sqrt(2 / fan_in)
        elif kind in ("scale", "var") or kind is None and "b_0" not in name:
            array = generator.uniform(0.5, 1.5, shape)
        else:
            array = generator.standard_normal(shape) * 0.1
        replaced.append(numpy_helper.from_array(array.astype(np.float32), name))
    names = {tensor.name for tensor in replaced}
    kept = [tensor for tensor in graph.initializer if tensor.name not in names]
    del graph.initializer[:]
    graph.initializer.extend(kept + replaced)
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def prepare_light(source, out):
    for path in sorted(source.glob("*.onnx")):
        model = onnx.load(path)
        [value] = own_inputs(model.graph)
        array = dummy_input(value)
        expected = load_tensor(path.with_name(f"{path.stem}_output_0.pb"))
        folder = out / "light" / path.stem
        folder.mkdir(parents=True)
        write_model(folder, "bound", model, [value.name], {value.name: array})
        write_outputs(folder, model, [expected])

        generator = np.random.default_rng(1)
        model = randomised(model, generator)
        array = generator.standard_normal(array.shape).astype(np.float32)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        folder = out / "light-random" / path.stem
        folder.mkdir(parents=True)
        write_model(folder, "bound", model, [value.name], {value.name: array})
        write_outputs(folder, model, session.run(None, {value.name: array}))


def main(out):
    data = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
    for suite in SUITES:
        for source in sorted((data / suite).iterdir()):
            folder = out / suite / source.name
            folder.mkdir(parents=True)
            try:
                prepare_case(source, folder)
            except Skipped as reason:
                (folder / "skipped").write_text(str(reason))
    prepare_light(data / "light", out)


main(pathlib.Path(sys.argv[1]))
