#pragma once

#include <string>
#include <utility>

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// The transaction is not the one that began any more: the handler, a procedure or the server has ended it behind the
/// store's back. What was done before that end may be written and may not; asking again would tell nothing, since the record went with it.
class TransactionEnded : public Error {
 public:
  explicit TransactionEnded(std::string message)
      : Error(Errc::commit_unknown, std::move(message)) {}
};

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
