#pragma once

#include <string_view>

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

/// Whether the statement begins or ends a transaction, or makes the server commit by itself, as far as its text shows: what
/// a procedure or a text that is put together on the server does is seen only afterwards.
[[nodiscard]] bool ends_transaction(std::string_view sql);
/// Whether the server lets nothing end the transaction in it, whatever functions and triggers it calls: not so in a procedure.
[[nodiscard]] bool cannot_end_transaction(std::string_view sql);

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
