<?php // What PDO does with a server: `php drivers.php PORT`. A line of JSON for each step.
$port = $argv[1];
$count = 'SELECT COUNT(*) AS n FROM shop WHERE age >= :age AND region = :region';
$groups = 'SELECT region, COUNT(*) AS n, AVG(amount) AS a FROM shop WHERE region IS NOT NULL GROUP BY region ORDER BY region';

function step($name, $work) {
    try { $reason = $work() ? '' : 'not so'; } catch (Throwable $error) { $reason = $error->getMessage(); }
    echo json_encode(['driver' => 'php-pdo', 'step' => $name, 'error' => $reason]), "\n";
}

function connect($port, $emulate) {
    return new PDO("pgsql:host=127.0.0.1;port=$port;dbname=shop", 'php', '', [
        PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION, PDO::ATTR_EMULATE_PREPARES => $emulate,
        PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC,
    ]);
}

foreach (['prepared' => false, 'emulated' => true] as $way => $emulate) {
    step("connect, $way", function () use (&$pdo, $port, $emulate) { $pdo = connect($port, $emulate); return true; });
    step("parameters, $way", function () use (&$pdo, $count) {
        $statement = $pdo->prepare($count);
        $statement->execute(['age' => 30, 'region' => 'east']);
        return $statement->fetchColumn() > 0;
    });
    step("types, $way", function () use (&$pdo, $groups) {
        $statement = $pdo->query($groups);
        return $statement->getColumnMeta(0)['name'] === 'region' && count($statement->fetchAll()) === 2;
    });
    step("transaction, $way", function () use (&$pdo, $groups) {
        return $pdo->beginTransaction() && $pdo->query($groups)->fetchAll() && $pdo->commit();
    });
    step("errors, $way", function () use (&$pdo) {
        try { $pdo->query('SELECT COUNT(*) FROM nothing'); } catch (PDOException $error) { return $error->getCode() === '42P01'; }
        return false;
    });
}
