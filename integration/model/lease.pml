/* The lease of a machine that belongs to a fleet: one owner, NK keepers, one machine. The bus
 * loses, delays and repeats every message: a message that was sent can be received any number
 * of times, or never. Time is discrete; each party only measures durations by its own clock.
 *
 * The session, the agent and the keeper are code, which takes the steps on disk and in messages in this
 * order. The owner is a person who waits for confirmations. */
#ifndef NK
#define NK 1
#endif
#define L 2     /* the length of a lease */
#define T 7     /* the horizon */
#define NEVER 255

byte t;                      /* the time */
bit revoked;                 /* the owner has written the revocation, and sent it to all */
bit head[2];                 /* a keeper has stored it */
bit sent[2];                 /* a keeper's confirmation was sent */
bit confirmed[2];            /* the owner has it */
byte since = NEVER;          /* when the owner had what the promise counts from */
bit have;                    /* the machine has stored the revocation */
bit dead;                    /* the machine's roots are revoked */
byte until = L;              /* the end of the lease in the lease file */
bit paused;                  /* guard.Registry is paused */
bit asked[T+1];              /* a request was sent at that time */
bit waits[T+1];              /* the agent waits for its answer */
bit old[T+1]; bit new[T+1];  /* answers that were sent, of keepers without and with the revocation */

/* Whether an operation is admitted.
 * code: guard.(*Registry).pausedAt, guard.(*machineLease).hasPassed */
#ifdef M_TIMERONLY
#define LIVE (!dead && !paused)
#else
#define LIVE (!dead && !paused && t < until)
#endif

#ifdef M_ANYKEEPER
#define ENOUGH (confirmed[0] || confirmed[1])
#else
#define ENOUGH (confirmed[0] && (NK == 1 || confirmed[1]))
#endif

#ifdef M_NONONCE
#define FOR_US(i) 1
#else
#define FOR_US(i) waits[i]
#endif
#if defined(M_FROMRECEIPT) || defined(M_NONONCE)
#define BASE(i) t
#else
#define BASE(i) i
#endif

/* The agent takes an answer with the number h to the request of the time i: first what the
 * answer says was revoked, and then the lease.
 * code: cmd/rootsfs/internal/fleet.(*agent).extend, cmd/rootsfs/internal/control.ReadLease */
#ifdef M_LEASEFIRST
#define ORDERS(h) skip
#else
#define ORDERS(h) if :: h && !have -> have = 1; dead = 1 :: else -> skip fi
#endif
#ifdef M_REGRANT
#define AGAIN dead = 0
#else
#define AGAIN skip
#endif
#define TAKE(i, h) ORDERS(h); if :: BASE(i)+L > until -> until = BASE(i)+L :: else -> skip fi; AGAIN; waits[i] = 0

#define REQUEST(i) \
  :: atomic { t == i && !asked[i] && (i == 0 || !waits[i-1] || i == 1 || !waits[i-2]) -> asked[i] = 1; waits[i] = 1 } \
  :: atomic { asked[i] && !old[i] && (!head[0] || NK == 2 && !head[1]) -> old[i] = 1 } \
  :: atomic { asked[i] && !new[i] && (head[0] || NK == 2 && head[1]) -> new[i] = 1 } \
  :: atomic { old[i] && FOR_US(i) -> TAKE(i, 0) } \
  :: atomic { new[i] && FOR_US(i) -> TAKE(i, 1) }

/* A request whose lease would be over by now is forgotten, with its answers: they have no effect
 * any more. */
#ifdef M_NONONCE
#define FORGET(i) skip
#else
#define FORGET(i) if :: i+L <= t -> asked[i] = 0; waits[i] = 0; old[i] = 0; new[i] = 0 :: else -> skip fi
#endif

/* A keeper stores the revocation, and then confirms it.
 * code: cmd/rootsfs/internal/fleet.(*keeper).keep */
#ifdef M_CONFIRMEARLY
#define KEEP(k) \
  :: atomic { revoked && !sent[k] -> sent[k] = 1 } \
  :: atomic { revoked && !head[k] -> head[k] = 1 }
#else
#define KEEP(k) :: atomic { revoked && !head[k] -> head[k] = 1; sent[k] = 1 }
#endif
#define CONFIRM(k) :: atomic { sent[k] && !confirmed[k] -> confirmed[k] = 1; \
  if :: since == NEVER && ENOUGH -> since = t :: else -> skip fi }

/* code: cmd/rootsfs/internal/session.(*Session).followLease, guard.(*Registry).SetMachineLease, guard.(*Registry).Pause, guard.(*Registry).EndPause */
active proctype Fleet() {
end:
  do
  :: atomic { t < T -> t++; FORGET(0); FORGET(1); FORGET(2); FORGET(3); FORGET(4); FORGET(5) }
  :: atomic { !revoked -> revoked = 1 }
  :: atomic { revoked && !have -> have = 1; dead = 1 } /* pushed to the machine */
  :: atomic { t >= until && !paused -> paused = 1 }
  :: atomic { t < until && paused -> paused = 0 }
  KEEP(0)
  CONFIRM(0)
#if NK == 2
  KEEP(1)
  CONFIRM(1)
#endif
  REQUEST(0) REQUEST(1) REQUEST(2) REQUEST(3) REQUEST(4) REQUEST(5) REQUEST(6) REQUEST(7)
  od }

/* P13: a lease after the owner has all confirmations, nothing that was granted before is live.
 * What the machine knows to be revoked is never live again.
 * code: guard.(*Registry).Admit */
active proctype Promise() {
end:
  if
  :: atomic { since != NEVER && t >= since+L && LIVE -> assert(false) }
  :: atomic { have && LIVE -> assert(false) }
  fi }
