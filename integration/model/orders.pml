/* The orders of a fleet with three keepers, of which two decide. Two owners give an order each: the
 * first one revokes, and the second one does something else. Their numbers come from their own
 * clocks, so either can be the higher one. Messages are lost, delayed and repeated. A keeper can be
 * restored from an old copy, which is empty here, and an owner makes it a keeper again.
 *
 * Leases have no time here: lease.pml shows that a lease is over in time which was asked for before the
 * confirmation. This model shows that no lease which is asked for later leaves the revocation out. */
#define KEEPERS 3
#define MOST 2
#ifdef M_ONEKEEPER
#define ENOUGH 1
#else
#define ENOUGH MOST
#endif
#ifdef M_ONETAKES
#define TAKEN 1
#else
#define TAKEN MOST
#endif

byte number[2];              /* of the owners' orders; the revocation is in number[0] */
bit revokes[3];              /* an order with that number has the revocation */
byte head[KEEPERS];          /* the number of a keeper's order; 0: none */
byte promised[KEEPERS];      /* the number that a keeper has promised */
bit restored[KEEPERS];       /* a keeper gives no lease and no vote */
bit confirmed;               /* the owner has the confirmation of the revocation */
byte known;                  /* the number of the machine's order */
bit dead;                    /* the machine has carried out the revocation */
bit asked[6];                /* a keeper has promised the number of the first, of the second owner */
byte granted[2];             /* how many have */
bit took[6];                 /* a keeper has taken the order of the first, of the second owner */
byte taken[2];               /* how many have */

/* code: cmd/rootsfs/internal/fleet.(*keeper).promise, cmd/rootsfs/internal/fleet.(*Owner).place */
#define PROMISE(i, k) atomic { !asked[i*KEEPERS+k] && granted[i] < MOST && !restored[k] && number[i] > promised[k] && number[i] > head[k] -> \
  asked[i*KEEPERS+k] = 1; promised[k] = number[i]; granted[i]++; newest = (head[k] > newest -> head[k] : newest); \
  if :: granted[i] == MOST -> revokes[number[i]] = (i == 0 || revokes[newest]) :: else -> skip fi }

/* code: cmd/rootsfs/internal/fleet.(*keeper).accept, cmd/rootsfs/internal/fleet.(*Owner).propose */
#ifdef M_NOPROMISE
#define VOTES(i, k) (head[k] < number[i])
#else
#define VOTES(i, k) (promised[k] == number[i] && head[k] < number[i])
#endif
#define ACCEPT(i, k) atomic { granted[i] == MOST && !restored[k] && VOTES(i, k) -> head[k] = number[i]; took[i*KEEPERS+k] = 1; taken[i]++; \
  if :: i == 0 && taken[i] == TAKEN -> confirmed = 1 :: else -> skip fi }

proctype Owner(byte i) {
  byte newest;
end:
  do
  :: PROMISE(i, 0) :: PROMISE(i, 1) :: PROMISE(i, 2)
  :: ACCEPT(i, 0) :: ACCEPT(i, 1) :: ACCEPT(i, 2)
  od }

/* A keeper begins with an old copy of its directory, and an owner brings back what it lacks: first he
 * asks the others, then the keeper gets the newest order and the highest promise, and is trusted. An
 * owner waits for votes for a few seconds, which is shorter than all this: so a vote from before the
 * copy does not count together with one from after it (VOID).
 * code: cmd/rootsfs/internal/fleet.(*keeper).begin, cmd/rootsfs/internal/fleet.(*Owner).bringBack, cmd/rootsfs/internal/fleet.(*keeper).trust, cmd/rootsfs/internal/fleet.(*keeper).renounce */
#define HIGHER(x, y) (x > y -> x : y)
#ifdef M_TRUSTOLD
#define DISTRUST(k) skip
#else
#define DISTRUST(k) restored[k] = 1
#endif
#ifdef M_LOSTPROMISE
#define FLOOR(k) skip
#else
#define FLOOR(k) promised[k] = HIGHER(promised[k], highest)
#endif
#define VOID(of, n, i, k) if :: n[i] < MOST && of[i*KEEPERS+k] -> of[i*KEEPERS+k] = 0; n[i]-- :: else -> skip fi
#define VOIDALL(k) VOID(asked, granted, 0, k); VOID(asked, granted, 1, k); VOID(took, taken, 0, k); VOID(took, taken, 1, k)

active proctype Copy() { /* of keeper 0: they are all alike */
  byte newest, highest;
end:
  atomic { head[0] = 0; promised[0] = 0; VOIDALL(0); DISTRUST(0) };
  atomic { newest = HIGHER(head[1], head[2]); highest = HIGHER(promised[1], promised[2]) };
  head[0] = HIGHER(head[0], newest);
  atomic { FLOOR(0); restored[0] = 0; newest = 0; highest = 0 } }

/* The machine asks for a lease, again and again. It takes the newest order of the answers, which need
 * not have the others' content, and gives its own one to keepers that lack it. A keeper that lacked it
 * at the time of the answer gives no lease.
 * code: cmd/rootsfs/internal/fleet.(*agent).renew, cmd/rootsfs/internal/fleet.(*agent).extend, cmd/rootsfs/internal/fleet.(*keeper).lease */
#define TAKE(n) if :: n > known -> known = n; if :: revokes[n] -> dead = 1 :: else -> skip fi :: else -> skip fi
#define ANSWER(k) atomic { !got[k] && waits -> got[k] = 1; \
  if :: head[k] >= before && !restored[k] -> given++ :: head[k] < before -> head[k] = before :: else -> skip fi; \
  if :: head[k] > best -> best = head[k] :: else -> skip fi }

active proctype Machine() {
  bit got[KEEPERS], waits, later; byte given, best, before;
end:
  do
  :: atomic { !waits -> waits = 1; later = confirmed; before = known; given = 0; best = 0; got[0] = 0; got[1] = 0; got[2] = 0 }
  :: ANSWER(0) :: ANSWER(1) :: ANSWER(2)
  :: atomic { waits -> waits = 0; TAKE(best); assert(!(given >= ENOUGH && later && !dead)) }
  :: atomic { head[0] > known -> TAKE(head[0]) } /* pushed */
  :: atomic { head[1] > known -> TAKE(head[1]) }
  :: atomic { head[2] > known -> TAKE(head[2]) }
  od }

init {
  atomic {
    if :: number[0] = 1; number[1] = 2 :: number[0] = 2; number[1] = 1 fi;
    run Owner(0); run Owner(1)
  } }
