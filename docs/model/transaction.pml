/* run_in_transaction: record and business statements in one database, committed or rolled back together. One writer
 * at a time holds the lock until its transaction ends (BEGIN IMMEDIATE; elsewhere the record's row). While it is held,
 * store.pml's variables are the writer's view and the saved_ ones what is committed. Replies to COMMIT are lost,
 * clients die, the server finishes or undoes a commit whose client is gone at any later time.
 *
 *   -DMODE=take_over | hold   on_expired_lease
 *   -DCALLERS=2 | 3           default 3; caller 0 works inside a transaction that the application opened and ends
 *   -DDEADLINES=1             blocked callers may give up (0: they wait for the lock)
 *   -DLIVENESS                with the claim that every call ends
 *   -DBUG=<name>              plants a bug of bugs.pml
 */
#define take_over 0
#define hold 1
#ifndef MODE
#define MODE take_over
#endif
#ifndef CALLERS
#define CALLERS 3
#endif
#ifndef DEADLINES
#define DEADLINES 1
#endif
#define most_attempts 2

#include "store.pml"

#define own_mode (MODE == hold)
#define result_of(i) (10 + i)
#define joined(i) (i == 0)

byte effects = 0;         /* of the business statements, as the writer sees them */
byte lock = nobody;
bool under_way = false;   /* the lock's holder sent COMMIT and is gone; the server has not finished */
byte cache = no_result;   /* what this process hands out without asking the database */
bool told_lost[CALLERS];  /* told for certain that nothing was committed */
byte calls_ended = 0;

mtype saved_phase = phase_absent;
byte saved_owner = nobody;
byte saved_fence = 0;
bool saved_mode_hold = false;
bool saved_lease_out = false;
byte saved_result = no_result;
byte saved_let_in = nobody;
byte saved_top = 0;
bool saved_live = false;
bool saved_start_open = false;
byte saved_kept = no_result;
byte saved_effects = 0;

#define committed(now, saved) ((lock == nobody && (now)) || (lock != nobody && (saved)))
#define committed_phase_is(which) committed(phase == which, saved_phase == which)

inline open_transaction(i) {
  lock = i;
  saved_phase = phase; saved_owner = owner; saved_fence = fence; saved_mode_hold = mode_hold;
  saved_lease_out = lease_out; saved_result = result; saved_let_in = let_in; saved_top = top; saved_live = live;
  saved_start_open = start_open; saved_kept = kept; saved_effects = effects
}

inline free_lock() {
  lock = nobody; under_way = false;
  saved_phase = phase_absent; saved_owner = nobody; saved_fence = 0; saved_mode_hold = false;
  saved_lease_out = false; saved_result = no_result; saved_let_in = nobody; saved_top = 0; saved_live = false;
  saved_start_open = false; saved_kept = no_result; saved_effects = 0;
  assert(effects <= 1);                                /* the effect happens once */
  assert((phase == phase_success) == (effects == 1))   /* record and effect together, or neither */
}

inline commit() {
  assert(!told_lost[lock]);
  free_lock()
}

inline roll_back() {
  phase = saved_phase; owner = saved_owner; fence = saved_fence; mode_hold = saved_mode_hold;
  lease_out = saved_lease_out; result = saved_result; let_in = saved_let_in; top = saved_top; live = saved_live;
  start_open = saved_start_open; kept = saved_kept; effects = saved_effects;
  free_lock()
}

/* Whoever is told of a result can rely on its effect. */
inline tell(with) {
  assert(committed(effects == 1, saved_effects == 1));
  assert(committed(phase == phase_success && result == with, saved_phase == phase_success && saved_result == with))
}

inline tell_what_is_committed() {
  if
  :: lock == nobody -> tell(result)
  :: else -> tell(saved_result)
  fi
}

inline do_business() {
  effects++;
#if BUG == effect_committed_first
  saved_effects++
#endif
}

/* The second step is no start: when it is lost, its lease ends and the key is free. */
#if BUG == failure_recorded_under_hold
#define mode_afterwards own_mode
#else
#define mode_afterwards false
#endif

proctype caller(byte i) {
  byte at = 0;
  byte attempts = 0;
  mtype answer;

  if
  :: d_step { cache != no_result -> tell(cache) }; goto done
  :: d_step { committed_phase_is(phase_success) -> tell_what_is_committed() }; goto done
  :: committed_phase_is(phase_failed_permanent) -> goto done
  :: true
  fi;

attempt:
  attempts++;
#if BUG == begin_does_not_block
  if
  :: committed_phase_is(phase_absent) -> answer = answer_acquired
  :: else -> answer = answer_lost
  fi;
#endif
  if
  :: d_step { lock == nobody -> open_transaction(i) }
#if DEADLINES
  :: goto done
#endif
  fi;
  d_step {
#if BUG == begin_does_not_block
    if
    :: answer == answer_acquired -> blank()
    :: else -> skip
    fi;
#endif
    begin(i, own_mode); answer = next_answer; at = fence
  };
  assert(answer != answer_uncertain);  /* nothing that was rolled back blocks the key */
  if
  :: answer == answer_acquired
  :: d_step { answer == answer_completed -> roll_back(); tell(result) }; goto done
  :: d_step { answer != answer_acquired && answer != answer_completed -> roll_back() }; goto done
  fi;
  d_step { do_business() };

  if
  :: true ->  /* the handler returns */
     d_step { complete(i, at, result_of(i)); assert(next_answer == answer_stored) };
     if
     :: joined(i) ->  /* executed_pending_commit */
#if BUG == published_before_commit
        cache = result_of(i);
#endif
        if
        :: d_step { commit(); tell(result_of(i)) }; cache = result_of(i)
        :: d_step { roll_back() }
        fi;
        goto done
     :: !joined(i)
     fi;
#if BUG == record_committed_first
     if
     :: d_step { effects--; free_lock() }; goto done
     :: true
     fi;
#endif
     if
     :: d_step { commit(); tell(result_of(i)) }; cache = result_of(i); goto done
     :: d_step { commit() }; goto unknown        /* done, the reply is lost */
     :: under_way = true; goto unknown
     :: under_way = true; goto done              /* the client dies */
     :: d_step { roll_back() }; goto again       /* refused: nothing was written */
     fi
  :: d_step { roll_back() }; goto done           /* it throws, or the client dies: undone */
  :: true ->                                     /* it throws PermanentFailure */
#if BUG == business_kept_on_permanent_failure
     d_step { fail_permanent(i, at); free_lock() };
     goto done
#else
     d_step { roll_back() };
     goto afterwards
#endif
  fi;

again:
  if
  :: attempts < most_attempts -> goto attempt
  :: else -> told_lost[i] = true; goto done
  fi;

unknown:  /* the write that blocks behind a commit under way is repeated: what it finds is final */
#if BUG == unknown_commit_taken_for_rollback
  told_lost[i] = true;
  goto done;
#endif
#if BUG == unknown_commit_settled_by_reading
  if
  :: d_step { committed_phase_is(phase_success) -> tell_what_is_committed() }
  :: !committed_phase_is(phase_success) -> told_lost[i] = true
  fi;
  goto done;
#endif
  if
  :: d_step { lock == nobody -> open_transaction(i) }
#if DEADLINES
  :: goto done  /* told that the outcome is not known */
#endif
  fi;
  d_step { begin(i, own_mode); answer = next_answer };
  if
  :: d_step { answer == answer_completed -> roll_back(); tell(result) }; goto done
  :: d_step { answer != answer_completed -> roll_back() }
  fi;
  if
  :: answer == answer_acquired -> goto again
  :: else -> goto done
  fi;

afterwards:  /* the failure is recorded in a second step, which may be lost */
  if
  :: d_step { lock == nobody -> begin(i, mode_afterwards); answer = next_answer; at = fence }
  :: goto done
  fi;
  if
  :: answer == answer_acquired
  :: else -> goto done
  fi;
  if
  :: d_step { lock == nobody -> fail_permanent(i, at) }
  :: goto done
  fi;

done:
  atomic { at = 0; attempts = 0; answer = 0; calls_ended++ }
}

/* The server's side, and the clock. */
active proctype server() {
end:
  do
  :: d_step { under_way -> commit() }
  :: d_step { under_way -> roll_back() }
  :: d_step { lock == nobody && phase == phase_processing && !lease_out -> lease_runs_out() }
  od
}

init {
  atomic {
    run caller(0);
    run caller(1);
#if CALLERS == 3
    run caller(2)
#endif
  }
}

#ifdef LIVENESS
ltl every_call_ends { <> (calls_ended == CALLERS) }
#endif
