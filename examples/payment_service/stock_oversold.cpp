// The accident of stocks: a queue redelivers its messages, several consumers look at the stock in the same moment, and more is sold
// than there is. With the guard each order is served once, and nothing is sold that is not there.
//
//   stock_oversold --folder FOLDER

#include <barrier>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <idempotency/idempotency.hpp>
#include <idempotency/patterns/sql_states.hpp>
#include <idempotency/stores/sqlite.hpp>

#include "accident.hpp"

namespace idem = idempotency;

namespace {

constexpr int pieces = 12;
constexpr int consumers = 8;

enum class Order { placed, reserved, sold_out };
constexpr idem::StateMachine<Order> order_machine(
    {{Order::placed, "placed", idem::StateKind::initial},
     {Order::reserved, "reserved", idem::StateKind::ordinary},
     {Order::sold_out, "sold_out", idem::StateKind::final}},
    {{Order::placed, Order::reserved}, {Order::reserved, Order::sold_out}});

/// A shop with 12 pieces in stock and 16 orders for one each.
class Shop {
 public:
  explicit Shop(const std::filesystem::path& file)
      : store_({.path = file.string(), .durability = idem::SqliteDurability::normal}) {
    idem::SqliteTransaction setup = store_.open_transaction();
    setup.execute("CREATE TABLE stock (pieces INTEGER NOT NULL)");
    setup.execute("INSERT INTO stock VALUES (?)", pieces);
    setup.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT NOT NULL)");
    setup.execute("CREATE TABLE parcel (order_id TEXT NOT NULL)");
    for (int number = 0; number < 2 * consumers; ++number)
      setup.execute("INSERT INTO orders VALUES (?, 'placed')", std::to_string(number));
    store_.commit(setup);
  }

  /// As it is often written: look, decide, write.
  void serve_naively(const std::string& order, std::barrier<>& all_have_looked) {
    const int left = ask("SELECT pieces FROM stock");
    all_have_looked.arrive_and_wait();  // what otherwise takes a busy Friday
    if (left <= 0) return;
    idem::SqliteTransaction sale = store_.open_transaction();
    sale.execute("UPDATE stock SET pieces = pieces - 1");
    sale.execute("INSERT INTO parcel VALUES (?)", order);
    store_.commit(sale);
  }

  /// The message is remembered, the stock cannot fall below zero, and the order moves once: all in one transaction.
  void serve(const std::string& order, std::barrier<>& all_have_looked) {
    all_have_looked.arrive_and_wait();
    const auto served =
        guard_.run_in_transaction({.key = {"order", order}}, [&](idem::SqliteTransaction& sale) {
          const auto answer = states_.transition(sale, order, Order::placed, Order::reserved);
          if (answer.status() != idem::TransitionStatus::moved) return false;  // served before
          const bool taken =
              sale.execute("UPDATE stock SET pieces = pieces - 1 WHERE pieces > 0").matched == 1;
          if (taken) {
            sale.execute("INSERT INTO parcel VALUES (?)", order);
          } else {
            static_cast<void>(states_.transition(sale, order, Order::reserved, Order::sold_out));
          }
          return taken;
        });
    static_cast<void>(served.value());  // recorded: the message may be acknowledged
  }

  int ask(const std::string& question) {
    idem::SqliteTransaction transaction = store_.open_transaction();
    const int answer = transaction.query(question).at(0).as<int>(0);
    store_.commit(transaction);
    return answer;
  }

 private:
  idem::SqliteStore store_;
  idem::IdempotencyGuard<idem::SqliteStore> guard_{store_};
  idem::SqlStates<Order> states_{order_machine, {.table = "orders"}};
};

/// Eight messages at a time, each delivered and, since the acknowledgement got lost, delivered again.
template <class Serve>
void deliver_everything(Serve serve) {
  for (const int first : {0, consumers}) {
    for (int delivery = 0; delivery < 2; ++delivery) {
      std::barrier<> all_have_looked(consumers);
      std::vector<std::jthread> crowd;
      for (int number = 0; number < consumers; ++number) {
        crowd.emplace_back(
            [&, order = std::to_string(first + number)] { serve(order, all_have_looked); });
      }
    }
  }
}

struct Books {
  int parcels;
  int left;
  int orders_with_two;
};

Books report(Shop& shop, const char* how) {
  const Books books{
      shop.ask("SELECT count(*) FROM parcel"), shop.ask("SELECT pieces FROM stock"),
      shop.ask(
          "SELECT count(*) FROM (SELECT 1 FROM parcel GROUP BY order_id HAVING count(*) > 1)")};
  std::cout << "  " << how << ": " << books.parcels << " parcels left the house, "
            << books.orders_with_two << " customers got two, " << books.left
            << " pieces in stock by the books" << std::endl;
  return books;
}

int play(const std::filesystem::path& folder) {
  std::cout << pieces << " pieces, " << 2 * consumers
            << " orders, and a queue that delivers every message twice" << std::endl;
  Shop naive(folder / "naive.db");
  deliver_everything(
      [&](const std::string& order, std::barrier<>& all) { naive.serve_naively(order, all); });
  const Books without = report(naive, "without");
  Shop guarded(folder / "guarded.db");
  deliver_everything(
      [&](const std::string& order, std::barrier<>& all) { guarded.serve(order, all); });
  const Books with = report(guarded, "with the guard");
  const int told = guarded.ask("SELECT count(*) FROM orders WHERE state = 'sold_out'");
  std::cout << "    and " << told << " customers were told that it is sold out" << std::endl;

  const bool kept = with.parcels == pieces && with.left == 0 && with.orders_with_two == 0 &&
                    told == 2 * consumers - pieces;
  const bool shown = without.parcels > pieces && without.orders_with_two > 0;
  const bool is_kept =
      shop::holds(kept, "with the guard 12 customers get one piece each, and 4 none");
  const bool is_shown = shop::holds(shown, "without the guard more is sold than there is");
  return is_kept && is_shown ? 0 : 1;
}

}  // namespace

int main(int count, char** values) {
  return shop::play_accident("stock_oversold", count, values, play);
}
