/// Which of the libraries of operators this is: STAND_IN_LIBRARY is its name.
#include "engine.hpp"

namespace {

struct Opened {
  Opened() { stand_in::engine().opened(STAND_IN_LIBRARY); }
};
const Opened opened;

}  // namespace
