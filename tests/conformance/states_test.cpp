#include <optional>
#include <string>

#include "idempotency/patterns/memory_states.hpp"
#include "idempotency/patterns/sql_states.hpp"
#include "idempotency/stores/sqlite.hpp"
#include "idempotency/testing/states_conformance.hpp"
#include "support/sqlite_file.hpp"

namespace idempotency::testing {
namespace {

class MemoryFixture {
 public:
  void create(const std::string& id, OrderState state) {
    static_cast<void>(states_.create(id, OrderState::created));
    const OrderState way[] = {OrderState::created, OrderState::paid, OrderState::shipped};
    for (std::size_t at = 0; way[at] != state; ++at)
      static_cast<void>(states_.transition(id, way[at], way[at + 1]));
  }
  TransitionResult<OrderState> transition(const std::string& id, OrderState from, OrderState to) {
    return states_.transition(id, from, to);
  }
  std::optional<OrderState> look(const std::string& id) { return states_.look(id); }

 private:
  MemoryStates<OrderState> states_{order_machine};
};

/// Each move in a transaction of its own.
class SqliteFixture {
 public:
  SqliteFixture() {
    plain_.run("CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID");
  }
  void create(const std::string& id, OrderState state) {
    plain_.run("INSERT INTO orders VALUES ('" + id + "', '" +
               std::string(order_machine.name_of(state)) + "')");
  }
  TransitionResult<OrderState> transition(const std::string& id, OrderState from, OrderState to) {
    return states_.transition(store_, id, from, to);
  }
  std::optional<OrderState> look(const std::string& id) {
    auto transaction = store_.open_transaction(TransactionOptions{});
    const auto state = states_.look(transaction, id);
    store_.rollback(transaction);
    return state;
  }

 private:
  testing_support::TemporaryFolder folder_;
  testing_support::PlainConnection plain_{folder_.file("shop.db")};
  SqliteStore store_{{.path = folder_.file("shop.db")}};
  SqlStates<OrderState> states_{order_machine, {.table = "orders"}};
};

INSTANTIATE_TYPED_TEST_SUITE_P(MemoryStates, StatesConformance, MemoryFixture);
INSTANTIATE_TYPED_TEST_SUITE_P(SqliteStates, StatesConformance, SqliteFixture);

}  // namespace
}  // namespace idempotency::testing
