// The runtime API without the language, which is one header here.
#pragma once

#include "cuda_runtime.h"
