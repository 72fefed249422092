// Stands in for the console where the program was built without cpp-httplib.

#include "commands.hpp"

namespace idempotencyctl {

Exit serve(const Settings& /*settings*/, const ServeOptions& /*options*/) {
  throw Ending(Exit::usage,
               "this program was built without the console: install cpp-httplib "
               "(libcpp-httplib-dev) and build it again");
}

}  // namespace idempotencyctl
