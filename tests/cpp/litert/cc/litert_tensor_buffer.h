#include "litert/mock.h"
