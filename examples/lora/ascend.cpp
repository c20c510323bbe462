// What trains on NPUs is compiled here, once.
#include "lora/instantiate.hpp"
