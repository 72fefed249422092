#pragma once

#include <mysql.h>

#include <type_traits>

#include "core/cancellation.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

/// `my_bool` of libmariadb, `bool` of libmysqlclient 8.
using ClientBool = std::remove_pointer_t<decltype(MYSQL_BIND::is_null)>;

/// Around every use of the client: initialises it once in the process and once in each thread (undone when the
/// thread ends; the library itself is never shut down, others may be using it), and keeps `pthread_cancel` from
/// leaving it half-way.
class ClientUse {
 public:
  ClientUse();

 private:
  CancellationShield shield_;
};

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
