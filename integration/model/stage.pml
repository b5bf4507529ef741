/* A staged root: descriptors that move to a copy (SWAP), the owner's apply of one path beside
 * the owner's own edits (APPLY), and the order of records and calls (NAMES). See doc.go.
 * Nothing here is a matter of the gate: an operation on a stage is one of tree.pml. */

#ifdef SWAP
#define NUMBERS 3
mtype = { unused, lower, copy, foreign };
mtype file[NUMBERS];         /* what a descriptor's number refers to */
bit tracked[NUMBERS];        /* staged.tracked */
bit swaps;                   /* staged.swaps is taken */
bit isUp, wrote;             /* the copy has the path; somebody has written to it */

#define LOCK atomic { !swaps -> swaps = 1 }
#define UNLOCK swaps = 0

/* code: vfs/internal/beneath.(*staged).track */
inline track(n) {
#ifdef M_LOOKEARLY
  up = isUp;
#endif
  LOCK;
#ifndef M_LOOKEARLY
  up = isUp;
#endif
  if :: up -> file[n] = copy :: else -> tracked[n] = 1 fi;
  UNLOCK; up = 0 }

/* code: vfs/internal/beneath.(*trackedFile).untrack */
inline untrack(n) { LOCK; tracked[n] = 0; UNLOCK }

/* kernel: the lowest number that is free */
inline opened(n, what) { atomic {
  n = 0; do :: n<NUMBERS && file[n]!=unused -> n++ :: else -> break od;
  file[n] = what } }

/* A program's file, opened to read. code: vfs/internal/beneath.(*Handle).Close */
proctype Reader() {
  byte n; bit up;
  opened(n, lower);
  track(n);
  atomic { assert(!(wrote && file[n]==lower)); assert(file[n]!=foreign) };  /* P9: it reads what is written */
#ifdef M_UNTRACKLATE
  file[n] = unused;
  untrack(n)
#else
  untrack(n);
  file[n] = unused
#endif
}

/* Anything else of this process that opens and closes something. kernel: numbers are given out again */
proctype Other() {
  byte n;
  opened(n, foreign);
  atomic { assert(file[n]==foreign); file[n] = unused } }         /* P9: no swap hits it */

/* code: vfs/internal/beneath.(*upCopy).moveTo, vfs/internal/beneath.(*staged).swapUp */
proctype Copier() {
  byte n;
  LOCK;
  isUp = 1;
  do
  :: n<NUMBERS -> if :: tracked[n] -> atomic { assert(file[n]==lower); file[n] = copy }; tracked[n] = 0 :: else fi; n++
  :: else -> break
  od;
  UNLOCK;
  wrote = 1 }

init { atomic {
  byte i = 0;
  do :: i<NUMBERS -> file[i] = unused; i++ :: else -> break od;
  run Reader(); run Reader(); run Copier(); run Other() } }
#endif

#ifdef APPLY
/* Files by number: 0 none, 1 what was compared, 2 the stage's, 3 and 4 the owner's new ones. */
#define FILES 5
byte path, temp;             /* two names in the source */
byte trash;                  /* files in the trash, as bits */
bit words[FILES];            /* it has words of the owner's that were nowhere when the stage was looked at */
bit changed[FILES];          /* its size or mtime is not what it was */
byte writers[FILES];         /* so many have it open for writing */
byte lease, asked;           /* the file that is leased; somebody waits for that lease */
bit placed = 1;              /* no placing record; else recNew says what it says */
bit isNew;                   /* Step.New is set: an exchange; else a removal */
bit kept;                    /* leave: the owner is told what lies under the temporary name */
bit over, ownerOver, killed;
bit unlinked, dropped[FILES];  /* the owner has removed the path; has dropped a file himself */
#define EDITS 3
#define KILLS 2

#define UNCHANGED(f) ((f)==1 && !changed[1])
#define BIT(x) (1<<(x))

/* kernel: fcntl F_SETLEASE, which fails while somebody has the file open for writing */
inline alone(f, yes) { atomic { if :: writers[f] -> yes = 0 :: else -> yes = 1; lease = f; asked = 0 fi } }
/* kernel: fcntl F_SETLEASE F_UNLCK; who waits goes on */
inline give() { atomic { lease = 0; asked = 0 } }

/* Nobody has written to a file under the temporary name, nor is about to. code:
   vfs/internal/apply.(*placement).isUsed */
inline isUsed(f, used) {
  alone(f, ok);
  used = !ok || changed[f] || asked;
  if :: ok -> give() :: else fi; ok = 0 }

/* code: vfs/internal/apply.(*placement).retire */
inline retire() { atomic {
#ifdef TRASH
  trash = trash|BIT(temp);
#endif
  temp = 0 } }

/* code: vfs/internal/apply.(*placement).leave */
inline leave() { atomic { kept = 1; placed = 1 } }

/* code: vfs/internal/apply.(*placement).exchangeBack */
inline back() {
  if
  :: atomic { path!=2 -> leave() }
  :: atomic { path==2 -> skip };
        atomic { if :: path -> f = path; path = temp; temp = f; f = 0 :: else -> goto end fi };  /* recover tries again */
#ifdef M_NOUSE
     used = 0;
#else
     used = temp!=2;
     if :: !used -> isUsed(2, used) :: else fi;
#endif
     if :: used -> leave() :: else -> atomic { temp = 0; placed = 1 } fi;
     used = 0
  fi }

/* code: vfs/internal/apply.(*placement).exchange, vfs/internal/apply.(*placement).blockWriters,
   vfs/internal/apply.(*placement).check */
inline exchange() {
  if :: atomic { !UNCHANGED(path) -> goto end } :: atomic { UNCHANGED(path) -> skip } fi;
  atomic { placed = 0; isNew = 1 };
  temp = 2;
  if :: atomic { !UNCHANGED(path) -> yes = 0 } :: atomic { UNCHANGED(path) -> yes = 1 } fi;
  if :: yes -> alone(1, yes) :: else fi;
  if :: yes -> skip :: else -> atomic { temp = 0; placed = 1 }; goto end fi;
  atomic { if :: path -> f = path; path = temp; temp = f; f = 0 :: else -> temp = 0; placed = 1; goto end fi };
#ifndef M_NOLOOK
  if :: atomic { !UNCHANGED(temp) -> yes = 0 } :: atomic { UNCHANGED(temp) -> skip } fi;
#endif
#ifndef M_NOLEASE
  yes = yes && !asked;
#endif
  if :: yes -> retire(); placed = 1 :: else -> back() fi }

/* code: vfs/internal/apply.(*placement).remove */
inline remove() {
  if :: atomic { !UNCHANGED(path) -> goto end } :: atomic { UNCHANGED(path) -> skip } fi;
  alone(1, yes);
  if :: yes -> skip :: else -> goto end fi;
  atomic { placed = 0; isNew = 0 };
  atomic { if :: path -> temp = path; path = 0 :: else -> placed = 1; goto end fi };
  if :: atomic { !UNCHANGED(temp) -> yes = 0 } :: atomic { UNCHANGED(temp) -> skip } fi;
#ifndef M_NOLEASE
  yes = yes && !asked;
#endif
  if :: yes -> retire(); placed = 1
     :: else -> moveBack() fi }

/* kernel: renameat2 with RENAME_NOREPLACE. code: vfs/internal/apply.(*placement).remove */
inline moveBack() {
  if :: atomic { path -> leave() }
     :: atomic { !path -> path = temp; temp = 0 }; placed = 1
  fi }

/* code: vfs/internal/apply.(*applier).recover, vfs/internal/apply.(*placement).restore */
inline recover() {
  if
  :: placed || !temp -> placed = 1
  :: else ->
#ifdef M_CLEANS
     temp = 0;                                  /* as the journal does with other temporary names */
#endif
     if
     :: !temp -> placed = 1
     :: temp==2 ->
#ifndef M_OURSAGAIN
        isUsed(2, used);
#endif
        if :: used -> leave() :: else -> temp = 0; placed = 1 fi
     :: else ->
        used = !UNCHANGED(temp);
#ifndef M_NOHOLD
        if :: !used -> isUsed(1, used) :: else fi;
#endif
        if :: !used -> retire(); placed = 1
           :: else -> if :: isNew -> if :: path -> back() :: else -> moveBack() fi :: else -> moveBack() fi
        fi
     fi
  fi;
  used = 0 }

/* Apply, which may be killed at each step, and what the next command does first.
 * code: vfs/internal/apply.(Env).Apply, vfs/internal/apply.(Env).Recover */
proctype Apply() {
  byte f; bit yes, ok, used;
  {
#ifdef REMOVE
    remove();
#else
    exchange();
#endif
    end: skip
  } unless { killed };
again:
  atomic { give(); killed = 0; f = 0; yes = 0; ok = 0; used = 0 };
  { recover() } unless { killed };
  if :: atomic { killed -> goto again } :: atomic { !killed && placed -> over = 1 } fi }

/* kernel: SIGKILL */
proctype Killer() {
  byte k;
  do :: atomic { k<KILLS && !killed && !over -> killed = 1; k++ } :: break od }

/* The owner's editors, which know nothing of the stage. kernel: open and write, which waits for
 * a lease with the file counted as open; rename to the path, from a new file; unlink */
proctype Owner() {
  byte k, f, new = 3;
  do
  :: k<EDITS -> k++;
     if
     :: atomic { path -> f = path; writers[f]++; if :: lease==f -> asked = 1 :: else fi };
        lease!=f;
        atomic { words[f] = !dropped[f]; changed[f] = 1 };
        atomic { writers[f]--; f = 0 }
     :: atomic { new<FILES -> words[path] = 0; dropped[path] = 1; path = new; words[new] = 1; changed[new] = 1; new++ }
     :: atomic { path -> words[path] = 0; dropped[path] = 1; path = 0; unlinked = 1 }
     :: skip
     fi
  :: else -> break
  od;
  ownerOver = 1 }

#define KEPT(f) (!words[f] || path==f || temp==f || trash&BIT(f))

/* P10: what the owner wrote is at the path, or in the trash, or where he is told.
 * code: vfs/internal/apply.(*placement).leave */
proctype Look() {
  atomic { over && ownerOver ->
    assert(KEPT(1) && KEPT(2) && KEPT(3) && KEPT(4));
    assert(!temp || kept);
#ifndef REMOVE
    assert(path || unlinked)
#endif
  } }

init { atomic { path = 1; run Apply(); run Owner(); run Killer(); run Look() } }
#endif

#ifdef NAMES
#define OPS 4
/* Two names in one directory. A number is a content; 0: the name is not there. The process may be
 * killed before each step, so a step that shows something else than before or after is a fault. */
byte low[2], up[2]; bit white[2];
byte before[2], after[2];

#define SEEN(n) (up[n] -> up[n] : (white[n] -> 0 : low[n]))
#define AS(w) (SEEN(0)==w[0] && SEEN(1)==w[1])
/* P11 */
#define LOOK assert(AS(before) || AS(after))

/* kernel: what anybody sees before a change, and what there shall be after it */
inline begin() { before[0] = SEEN(0); before[1] = SEEN(1); after[0] = before[0]; after[1] = before[1] }

/* code: vfs/internal/beneath.(*union).remove */
inline unlink(n) { atomic { begin(); after[n] = 0 };
#ifdef M_ACTFIRST
  up[n] = 0; LOOK;
#endif
  if :: low[n] -> white[n] = 1; LOOK :: else fi;
  up[n] = 0 }

/* code: vfs/internal/beneath.(*staged).copyUp, vfs/internal/beneath.(*upCopy).place */
inline copyUp(n) { atomic { begin(); if :: !up[n] -> up[n] = SEEN(n) :: else fi } }

/* code: vfs/internal/beneath.(*unionMove).try, vfs/internal/beneath.(*unionMove).move */
inline move(a, b) {
  copyUp(a); LOOK;
  atomic { begin(); after[b] = before[a]; after[a] = 0 };
#ifdef M_WHITENEW
  if :: low[b] -> white[b] = 1; LOOK :: else fi;
#endif
#ifdef M_MOVEFIRST
  atomic { up[b] = up[a]; up[a] = 0 }; LOOK;
#endif
  if :: low[a] -> white[a] = 1; LOOK :: else fi;
  atomic { if :: up[a] -> up[b] = up[a]; up[a] = 0 :: else fi } }

/* code: vfs/internal/beneath.(*unionMove).move */
inline swap() {
  copyUp(0); LOOK; copyUp(1); LOOK;
  atomic { begin(); after[0] = before[1]; after[1] = before[0] };
  atomic { up[0] = after[0]; up[1] = after[1] } }

/* The source has by now what the stage has. code: vfs/internal/beneath.(Stage).Clear */
inline clear(n) { atomic { begin(); low[n] = SEEN(n) }; LOOK;
#ifdef M_CLEARLAST
  up[n] = 0; LOOK;
#endif
  white[n] = 0; LOOK;
  up[n] = 0 }

/* code: vfs/internal/beneath.(Stage).Discard */
inline discard(n) { atomic { begin(); after[n] = low[n] };
#ifndef M_NAMEFIRST
  if :: up[n] -> white[n] = 0; LOOK :: else fi;
#endif
  up[n] = 0; LOOK;
  white[n] = 0 }

/* code: vfs/internal/beneath.(*union).willMake, vfs/internal/beneath.CreateFile */
inline create(n) { atomic { begin(); if :: !SEEN(n) -> up[n] = 5; after[n] = 5 :: else fi } }

/* Operations one after another. code: vfs/internal/beneath.(*Dir).begin */
proctype Stage() {
  byte k;
  do
  :: k<OPS -> k++;
     if
     :: SEEN(0) -> unlink(0) :: SEEN(1) -> unlink(1) :: SEEN(0) -> move(0, 1) :: SEEN(1) -> move(1, 0)
     :: SEEN(0) && SEEN(1) -> swap()
     :: create(0) :: create(1) :: clear(0) :: discard(0) :: discard(1)
     :: copyUp(1)
     fi;
     assert(AS(after))
  :: else -> break
  od }

init { atomic {
  if :: low[0] = 1 :: skip fi; if :: low[1] = 2 :: skip fi;
  run Stage() } }
#endif

#ifdef FREEZE
/* One file of the upper directory, checkpoints of it, and programs that write it. A number is what the
 * file contains. An object is another name of the file, or a copy. What is in a directory or on the
 * disk is there after a kill, so what holds at each step holds then, too. An undo is no process of its
 * own: it holds staged.mu, as each change of names does, and after a kill it is done again from its
 * beginning. */
#define POINTS 2
#define WRITES 2
byte inode;                  /* what the file contains */
bit isCopy[POINTS+1];        /* an object is a copy, which contains kept */
byte kept[POINTS+1];
byte object, objects;        /* frozen.files: the file's object, 0: it is not frozen; how many there are */
byte generation;             /* frozen.generation */
bit locked; byte readers;    /* frozen.writes */
bit copying;                 /* object.mu */
byte point[POINTS], was[POINTS]; /* of each checkpoint: its object, and what the file contained */

#define CONTENTS(o) (isCopy[o] -> kept[o] : inode)
#define HAS(k) (!point[k] || CONTENTS(point[k])==was[k])
/* P12 */
#define KEEPS assert(HAS(0) && HAS(1))

/* code: vfs/internal/beneath.(*staged).freezeAll, vfs/internal/beneath.(*staged).freeze */
proctype Freezer() {
  byte k;
  do
  :: k<POINTS ->
     atomic { !locked && !readers -> locked = 1 };
     generation++;
     if :: !object -> objects++; object = objects :: else fi;    /* a link, then an entry */
     atomic { point[k] = object; was[k] = inode; k++ };
     locked = 0
  :: else -> break
  od }

/* code: vfs/internal/beneath.(*staged).frozenFile */
inline frozenFile(isLocked) {
  g = generation;
  if :: !g || thawed==g -> o = 0 :: else -> o = object fi;
#ifdef M_THAWEDEARLY
  if :: !o -> thawed = g :: else fi
#else
  if :: !o && isLocked -> thawed = g :: else fi
#endif
}

/* code: vfs/internal/beneath.(*staged).thaw, vfs/internal/beneath.(*staged).putObject */
inline thaw() {
  frozenFile(0);
  if
  :: !o
  :: else ->
     atomic { !copying -> copying = 1 };
     if
     :: object==o ->
#ifdef M_DROPFIRST
        object = 0;
#endif
        kept[o] = inode;
        isCopy[o] = 1;                         /* renameat2; the upper's file is not touched */
        object = 0
     :: else
     fi;
     copying = 0
  fi }

/* A program. code: vfs/internal/beneath.(Changeable).write, vfs/internal/beneath.(*staged).writeThawed */
proctype Writer() {
  byte k, g, o, thawed;                        /* tracked.thawed */
  do
  :: k<WRITES ->
     thaw();
#ifdef M_NOLOCK
     frozenFile(0);
     if :: o :: else -> atomic { inode++; KEEPS; k++ } fi
#else
     atomic { !locked -> readers++ };
     frozenFile(1);
     if :: o :: else -> atomic { inode++; KEEPS; k++ } fi;
     readers--
#endif
  :: else -> break
  od }

init { atomic { run Freezer(); run Writer(); run Writer() } }
#endif
