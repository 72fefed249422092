#include "idempotency/patterns/redlock.hpp"

#include <system_error>
#include <thread>

namespace idempotency {
inline namespace v0 {
namespace detail {

void at_once(std::size_t count, const std::function<void(std::size_t)>& call) {
  std::vector<std::jthread> threads;
  threads.reserve(count);
  for (std::size_t at = 0; at + 1 < count; ++at) {
    try {
      threads.emplace_back([&call, at] { call(at); });
    } catch (const std::system_error&) {  // no thread is to be had: one after the other
      call(at);
    }
  }
  call(count - 1);
}

void throw_no_majority(const std::string& first_error) {
  throw Error(Errc::store_undecidable,
              "too few of the servers answer for a majority; repeat the call when they are back",
              first_error);
}

void check_redlock_size(std::size_t servers) {
  if (servers >= 3 && servers % 2 == 1) return;
  throw Error(Errc::invalid_argument,
              "a Redlock needs three servers, five, or any odd number above: an even one survives "
              "no more losses");
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
