#include "mysql/mysql_result.hpp"

#include <algorithm>
#include <array>

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

namespace {

struct Known {
  unsigned code;
  Cause cause;
};

// By number, because the two clients name them differently. Sorted.
constexpr std::array known{
    Known{1020, Cause::conflict},       // record has changed (innodb_snapshot_isolation)
    Known{1021, Cause::full},           // disk full
    Known{1034, Cause::damaged},        // incorrect key file
    Known{1037, Cause::overloaded},     // out of memory
    Known{1038, Cause::overloaded},     // out of sort memory
    Known{1040, Cause::overloaded},     // too many connections
    Known{1041, Cause::overloaded},     // out of resources
    Known{1042, Cause::unreachable},    // bad host
    Known{1043, Cause::unreachable},    // bad handshake
    Known{1047, Cause::not_ready},      // a Galera node that is not ready
    Known{1053, Cause::reply_lost},     // shutdown in progress
    Known{1077, Cause::reply_lost},     // normal shutdown
    Known{1079, Cause::reply_lost},     // shutdown complete
    Known{1114, Cause::full},           // table full
    Known{1135, Cause::overloaded},     // cannot create thread
    Known{1152, Cause::reply_lost},     // aborting connection
    Known{1153, Cause::too_large},      // packet too large
    Known{1156, Cause::reply_lost},     // packets out of order
    Known{1157, Cause::reply_lost},     // a packet that cannot be decompressed
    Known{1158, Cause::reply_lost},     // network read error
    Known{1159, Cause::reply_lost},     // network read interrupted
    Known{1160, Cause::reply_lost},     // network write error
    Known{1161, Cause::reply_lost},     // network write interrupted
    Known{1180, Cause::commit_failed},  // error during COMMIT
    Known{1181, Cause::commit_failed},  // error during ROLLBACK
    Known{1184, Cause::reply_lost},     // aborting new connection
    Known{1194, Cause::damaged},        // table is marked as crashed
    Known{1195, Cause::damaged},        // and repair failed
    Known{1203, Cause::overloaded},     // too many connections of one user
    Known{1205, Cause::lock_wait},      // lock wait time-out
    Known{1206, Cause::conflict},       // lock table full: rolls back like a deadlock
    Known{1213, Cause::conflict},       // deadlock; on Galera also at COMMIT
    Known{1226, Cause::overloaded},     // resource limit of a user
    Known{1243, Cause::interrupted},    // unknown prepared statement
    Known{1290, Cause::not_ready},      // read_only
    Known{1317, Cause::interrupted},    // KILL QUERY
    Known{1412, Cause::conflict},       // the table has been altered since the snapshot
    Known{1461, Cause::overloaded},     // too many prepared statements
    Known{1613, Cause::conflict},       // XA rollback after time-out
    Known{1614, Cause::conflict},       // XA rollback after deadlock
    Known{1615, Cause::interrupted},    // prepared statement needs to be prepared again
    Known{1637, Cause::overloaded},     // too many concurrent transactions
    Known{1712, Cause::damaged},        // index damaged
    Known{1836, Cause::not_ready},      // read-only mode
    Known{1927, Cause::reply_lost},     // KILL CONNECTION
    Known{1969, Cause::interrupted},    // max_statement_time (MariaDB)
    Known{2000, Cause::reply_lost},     // unknown error of the client's
    Known{2001, Cause::unreachable},    // cannot create socket
    Known{2002, Cause::unreachable},    // cannot connect to the local server
    Known{2003, Cause::unreachable},    // cannot connect to the server
    Known{2004, Cause::unreachable},    // cannot create a TCP socket
    Known{2005, Cause::unreachable},    // unknown host
    Known{2006, Cause::unsent},         // server has gone away
    Known{2008, Cause::overloaded},     // client out of memory
    Known{2009, Cause::unreachable},    // wrong host info
    Known{2012, Cause::unreachable},    // error in the handshake
    Known{2013, Cause::reply_lost},     // lost connection
    Known{2014, Cause::reply_lost},     // commands out of step
    Known{2020, Cause::too_large},      // packet too large for the client
    Known{2026, Cause::reply_lost},     // TLS error
    Known{2027, Cause::reply_lost},     // malformed packet
    Known{2055, Cause::reply_lost},     // lost connection, with the system's error
    Known{2061, Cause::refused},        // the client's part of an account's authentication
    Known{3024, Cause::interrupted},    // max_execution_time (MySQL)
    Known{3032, Cause::not_ready},      // offline mode (MySQL)
    Known{3100, Cause::conflict},       // group replication: transaction rolled back
    Known{3101, Cause::conflict},       // the same, at COMMIT
    Known{3168, Cause::not_ready},      // the server is not available (MySQL)
    Known{3169, Cause::reply_lost},     // KILL CONNECTION (MySQL)
    Known{3572, Cause::lock_wait},      // NOWAIT
    Known{4031, Cause::unsent},         // disconnected for inactivity (MySQL)
};

constexpr bool in_order() {
  for (std::size_t index = 1; index < known.size(); ++index) {
    if (known[index - 1].code >= known[index].code) return false;
  }
  return true;
}
static_assert(in_order());

Errc of_write(Cause cause) noexcept {
  switch (cause) {
    case Cause::unreachable:
    case Cause::unsent:
    case Cause::not_ready:
      return Errc::store_unavailable;
    case Cause::reply_lost:
    case Cause::commit_failed:
      return Errc::store_reply_lost;
    case Cause::conflict:
    case Cause::lock_wait:
    case Cause::interrupted:
    case Cause::overloaded:
      return Errc::store_busy;
    case Cause::full:
      return Errc::store_full;
    case Cause::too_large:
      return Errc::too_large;
    case Cause::damaged:
      return Errc::store_corrupt;
    case Cause::refused:
      return Errc::store_refused;
  }
  return Errc::store_refused;
}

/// Nothing of a transaction is written before its COMMIT.
Errc of_within(Cause cause) noexcept {
  switch (cause) {
    case Cause::unreachable:
    case Cause::unsent:
    case Cause::reply_lost:
    case Cause::conflict:
    case Cause::commit_failed:
      return Errc::transaction_lost;
    default:
      return of_write(cause);
  }
}

Errc of_handler(Cause cause) noexcept {
  switch (cause) {
    case Cause::interrupted:
    case Cause::overloaded:
    case Cause::not_ready:
    case Cause::damaged:
    case Cause::refused:
      return Errc::statement_failed;
    default:
      return of_within(cause);
  }
}

Errc of_commit(Cause cause) noexcept {
  switch (cause) {
    case Cause::unsent:
    case Cause::conflict:
    case Cause::lock_wait:
    case Cause::not_ready:
      return Errc::transaction_lost;
    default:
      return Errc::commit_unknown;
  }
}

/// What a user can do about it.
std::string_view advice(Errc code) noexcept {
  switch (code) {
    case Errc::store_unavailable:
      return "the server cannot be reached or does not take writes now; nothing was written, "
             "repeat the call";
    case Errc::store_reply_lost:
      return "no answer came; repeat the call with the same token";
    case Errc::store_busy:
      return "the server is busy or another transaction holds the record; repeat the call";
    case Errc::store_full:
      return "the server has no room left; make room, then repeat the call";
    case Errc::too_large:
      return "the value is larger than the server takes; look at max_allowed_packet";
    case Errc::store_corrupt:
      return "the table is damaged; look at it before using it";
    case Errc::transaction_lost:
      return "the server ended the transaction; nothing of it is written, repeat all of it";
    case Errc::commit_unknown:
      return "the commit was not confirmed; run the same operation again to settle it";
    case Errc::statement_failed:
      return "the server refused a statement; see the detail";
    default:
      return "the server refuses; look at account, database, table and rights";
  }
}

std::string_view advice_for_connecting(unsigned code, Errc errc) noexcept {
  switch (code) {
    case 1045:  // what MariaDB says as well to those who come unencrypted under require_secure_transport
      return "the server refuses; look at account, password and rights, and whether it takes "
             "encrypted connections only (tls)";
    case 2026:
      return "no encrypted connection came about; look at tls, tls_ca and the server's "
             "certificate; nothing was written";
    case 3159:
      return "the server takes encrypted connections only; set tls to required or verified";
    default:
      return advice(errc);
  }
}

}  // namespace

Cause cause_of(unsigned code) noexcept {
  const auto found =
      std::lower_bound(known.begin(), known.end(), code,
                       [](const Known& entry, unsigned wanted) { return entry.code < wanted; });
  if (found != known.end() && found->code == code) return found->cause;
  // An error of the client's that is not known: whether the statement was sent is not either.
  const bool of_client = (code >= 2000 && code < 3000 && code != 2007 && code != 2059) ||
                         (code >= 5000 && code < 6000);
  return of_client ? Cause::reply_lost : Cause::refused;
}

Errc errc_of(Cause cause, Stage stage) noexcept {
  switch (stage) {
    case Stage::connect:
    case Stage::read: {
      const bool lost = cause == Cause::reply_lost || cause == Cause::commit_failed;
      return lost ? Errc::store_unavailable : of_write(cause);
    }
    case Stage::write:
      return of_write(cause);
    case Stage::within:
      return of_within(cause);
    case Stage::handler:
      return of_handler(cause);
    case Stage::commit:
      return of_commit(cause);
  }
  return Errc::store_refused;
}

bool breaks_connection(unsigned code) noexcept {
  if (code == 1243) return true;  // the server has forgotten our statements
  switch (cause_of(code)) {
    case Cause::unreachable:
    case Cause::unsent:
    case Cause::reply_lost:
    case Cause::not_ready:  // another server may be the one to write to now
    case Cause::commit_failed:
      return true;
    default:
      return false;
  }
}

bool is_worth_repeating(unsigned code) noexcept {
  return cause_of(code) == Cause::conflict || code == 1615;
}

Error make_error(unsigned code, std::string_view words, Stage stage, std::string_view doing) {
  const Errc errc = errc_of(cause_of(code), stage);
  std::string message = "mysql store, ";
  message += doing;
  message += ": ";
  message += stage == Stage::connect ? advice_for_connecting(code, errc) : advice(errc);
  message += " (error " + std::to_string(code) + ')';
  std::string detail = "error " + std::to_string(code) + ": ";
  detail += words;
  return Error(errc, std::move(message), std::move(detail));
}

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
