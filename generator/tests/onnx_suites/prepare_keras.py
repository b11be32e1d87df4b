"""Prepares networks of Keras for onnx_suites: `prepare_keras.py FOLDER keras3|tf2onnx`.

The networks of keras.applications, and small ones of layers that those lack, get random weights and statistics. `keras3` are exported by Keras 3
itself, `tf2onnx` by tf2onnx from the Keras of TensorFlow 2. Each becomes a folder SUITE/CASE, as in prepare.py.
"""

import os
import pathlib
import struct
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
SUITE = sys.argv[2]
if SUITE == "tf2onnx":
    os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

if SUITE == "tf2onnx":
    import tf2onnx  # noqa: E402
    import tf_keras as keras  # noqa: E402
else:
    import keras  # noqa: E402

# Exporting VGG-16 takes 20 GB: the small networks have its flattened images instead.
APPLICATIONS = (
    "DenseNet121 EfficientNetB0 InceptionV3 MobileNet MobileNetV2 MobileNetV3Small NASNetMobile ResNet50 ResNet50V2 Xception".split()
)
# In Keras 3 only.
LATER_APPLICATIONS = ["EfficientNetV2B0"] if SUITE == "keras3" else []
# Networks that normalise bytes themselves.
FROM_BYTES = ("EfficientNet", "MobileNetV3")


def application(name):
    """A network of keras.applications without its softmax."""
    size = 299 if name in ("InceptionV3", "Xception") else 224
    return getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classifier_activation=None)


def flattened():
    """Convolutions and pools of odd images, whose features a dense layer reads in the order of rows, columns and channels."""
    layers = keras.layers
    return keras.Sequential([
        keras.Input((19, 15, 3)),
        layers.Conv2D(13, 3, strides=2, padding="same", activation="relu"),
        layers.ZeroPadding2D(((1, 2), (0, 3))),
        layers.DepthwiseConv2D(3, padding="valid"),
        layers.BatchNormalization(),
        layers.LeakyReLU(),
        layers.MaxPooling2D(2),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(11, activation="tanh"),
        layers.Dense(7),
    ])


def branches():
    """Branches that are concatenated, added and gated, transposed convolutions, upsampling and a PReLU."""
    layers = keras.layers
    image = keras.Input((18, 22, 5))
    a = layers.Conv2D(8, 3, padding="same", groups=1, dilation_rate=2)(image)
    b = layers.SeparableConv2D(8, 5, padding="same", activation="swish")(image)
    both = layers.Concatenate()([a, b, layers.AveragePooling2D(3, strides=1, padding="same")(image)])
    both = layers.PReLU(shared_axes=[1, 2])(both)
    gate = layers.GlobalAveragePooling2D(keepdims=True)(both)
    gate = layers.Conv2D(21, 1, activation="sigmoid")(gate)
    gated = layers.Multiply()([both, gate])
    small = layers.Conv2D(12, 3, strides=2, padding="same", activation="relu")(gated)
    up = layers.Conv2DTranspose(6, 2, strides=2)(small)
    wide = layers.UpSampling2D(2, interpolation="bilinear")(layers.Conv2D(6, 1)(small))
    out = layers.Add()([up, wide])
    return keras.Model(image, layers.Dense(9)(layers.GlobalMaxPooling2D()(out)))


SMALL = {"flattened": flattened, "branches": branches}


# Those of a new network are ones and zeros.
RANGES = {
    "gamma": (0.7, 1.3),
    "moving_var": (0.7, 1.3),
    "moving_variance": (0.7, 1.3),
    "beta": (-0.1, 0.1),
    "bias": (-0.1, 0.1),
    "moving_mean": (-0.1, 0.1),
    "alpha": (0.1, 0.4),
}


def random_weight(name, shape, generator):
    """Random numbers for a weight: filters of a size that keeps activations in range, so that outputs depend on the image."""
    if name in RANGES:
        return generator.uniform(*RANGES[name], shape).astype(np.float32)
    # Rows, columns, input and output channels; a depthwise filter has one of the latter.
    is_depthwise = len(shape) == 4 and shape[3] == 1
    fan_in = int(np.prod(shape[:2] if is_depthwise else shape[:-1]))
    return (generator.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)


def randomise(model, generator):
    """Gives a network random weights."""
    weights = []
    for weight in model.weights:
        path = weight.path if SUITE == "keras3" else weight.name.removesuffix(":0")
        name = path.rsplit("/", 1)[-1]
        is_constant = not weight.trainable and not name.startswith("moving")
        weights.append(np.asarray(weight) if is_constant else random_weight(name, weight.shape, generator))
    model.set_weights(weights)


def write_tensor(path, name, array):
    """The bytes of a tensor's name and of its values, each after their number."""
    with open(path, "wb") as file:
        for data in [name.encode(), np.ascontiguousarray(array, dtype="<f4").tobytes()]:
            file.write(struct.pack("<Q", len(data)) + data)


def prepare(name, out):
    keras.utils.set_random_seed(1)
    model = SMALL[name]() if name in SMALL else application(name)
    generator = np.random.default_rng(2)
    randomise(model, generator)
    shape = (1, *model.input_shape[1:])
    image = generator.standard_normal(shape).astype(np.float32)
    if name.startswith(FROM_BYTES):
        image = 128 + 40 * image
    # Keras 3 exports a network only once it was called.
    output = np.asarray(model(image, training=False))
    # A wrong network could have the right outputs if they were the same for all images. The bound of the test is 2e-5.
    other = np.asarray(model(image[:, ::-1], training=False))
    difference = np.linalg.norm(output - other) / np.linalg.norm(output)
    assert np.isfinite(output).all() and difference > 3e-4, f"{name} hardly depends on its input: {difference}"
    folder = out / SUITE / name
    folder.mkdir(parents=True)
    path = str(folder / "bound.onnx")
    if SUITE == "keras3":
        model.export(path, format="onnx", verbose=False)
    else:
        signature = (tf.TensorSpec((None, *shape[1:]), tf.float32, name="image"),)
        tf2onnx.convert.from_keras(model, input_signature=signature, opset=15, output_path=path)
    write_tensor(folder / "bound.inputs", "image", image)
    write_tensor(folder / "outputs", "output", output)


for case in [*SMALL, *APPLICATIONS, *LATER_APPLICATIONS]:
    prepare(case, pathlib.Path(sys.argv[1]))
    print(case, flush=True)
