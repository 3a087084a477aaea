# What DBD::Pg does with a server: `perl drivers.pl PORT`. A line of JSON for each step.
use strict; use warnings; use DBI;
my ($port) = @ARGV;
my $dbh;
my $count = "SELECT COUNT(*) AS n FROM shop WHERE age >= ? AND region = ?";
my $groups = "SELECT region, COUNT(*) AS n, AVG(amount) AS a FROM shop WHERE region IS NOT NULL GROUP BY region ORDER BY region";

sub step {
  my ($name, $work) = @_;
  my $reason = eval { $work->() or die "not so\n"; 1 } ? "" : "$@";
  $reason =~ s/["\\]|[^ -~]/ /g;
  print qq({"driver": "perl-dbd-pg", "step": "$name", "error": "$reason"}\n);
}

step("connect", sub { $dbh = DBI->connect("dbi:Pg:dbname=shop;host=127.0.0.1;port=$port", "perl", "", { RaiseError => 1, PrintError => 0 }) });
step("ping", sub { $dbh->ping });
step("tables", sub { grep { /sales/ } $dbh->tables(undef, undef, "%", "TABLE,VIEW") });
step("columns", sub { my $rows = $dbh->column_info(undef, undef, "sales", "%")->fetchall_arrayref({}); grep { $_->{COLUMN_NAME} eq "amount" } @$rows });
step("parameters", sub { my ($n) = $dbh->selectrow_array($count, undef, 30, "east"); $n > 0 });
step("prepared", sub { my $sth = $dbh->prepare($count); for (30 .. 34) { $sth->execute($_, "east") } $sth->fetchrow_array > 0 });
step("groups", sub { @{ $dbh->selectall_arrayref($groups, { Slice => {} }) } == 2 });
step("transaction", sub { $dbh->begin_work; $dbh->selectall_arrayref($groups); $dbh->rollback });
step("errors", sub { !eval { $dbh->do("SELECT COUNT(*) FROM nothing"); 1 } and $dbh->state eq "42P01" });
