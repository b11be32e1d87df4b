// The runtime API without the language extensions; here both are in one header.
#pragma once

#include "cuda_runtime.h"
