// EXPECT g++: no matching function for call to
// EXPECT clang++: no matching constructor
#include "idempotency/key.hpp"

int main() {
  const idempotency::Key key{"payment", 0};
  return key.value().empty() ? 1 : 0;
}
